"""What the model says of a name, an attribute or a condition: the questions that rules share."""

import libcst as cst
import pytest
from model_helpers import marked, model_of

from xladoctor.lint.model.conditions import asked_for_none, joined


def text(model, node):
    return None if node is None else model.tree.text(node).strip()


BOUND = """
def run(pair, pairs, path):
    {line}
    x  # <- x
"""


@pytest.mark.parametrize(
    ("line", "made", "of", "places"),
    [
        ("x = pair", ["pair"], None, None),
        ("x, y = pair", ["pair"], "pair", (0,)),
        ("y, (z, x) = pair", ["pair"], "pair", (1, 1)),
        ("y, *x = pair", ["pair"], "pair", (1,)),
        ("y = [z, x] = pair", ["pair"], "pair", (1,)),
        ("x, y = pair[0], pair[1]", ["pair[0]"], None, None),
        ("for x in pairs: pass", [None], "pairs", ()),
        ("for i, (x, y) in enumerate(pairs): pass", [None], "enumerate(pairs)", (1, 0)),
        ("with open(path) as x: pass", [None], None, None),
        ("x += 1", [None], None, None),
    ],
)
def test_where_a_name_takes_its_value_from(line, made, of, places):
    model = model_of(BOUND.format(line=line))
    name = marked(model, "x")
    assert [text(model, one) for one in model.made_of(name)] == made
    [binding] = model.bindings("x", name)
    part = model.taken(binding.node)
    if of is None:
        assert part is None or part.value is binding.node
    else:
        assert part is not None
        assert (text(model, part.value), part.places) == (of, places)


KEPT = """
class Net:
    def __init__(self, size):
        self.size = size
    def grow(self, other):
        other.size = 3
        def inner():
            self.size = 4
            self.size  # <- own
            other.size  # <- other
"""


def test_what_a_class_keeps_is_asked_of_its_own_attributes_alone():
    model = model_of(KEPT)
    assert [text(model, one) for one in model.kept_in(marked(model, "own"))] == ["size", "4"]
    assert list(model.kept_in(marked(model, "other"))) == []


CALLS = """
def run(x):
    first()
    if x:
        second(inner())
    return
    never()
def other():
    apart()
"""


def test_calls_in_a_node_and_between_two():
    model = model_of(CALLS)
    [run, _] = model.functions
    assert [call.last for call in model.calls_in(run.node)] == ["first", "second", "inner"]
    inner = next(call for call in model.calls() if call.last == "inner")
    first = next(call for call in model.calls() if call.last == "first")
    assert [call.last for call in model.calls_between(first.node, inner.node)] == ["second"]


@pytest.mark.parametrize(
    ("test", "asked"),
    [
        ("x is None", ("x", True)),
        ("self.x is not None", ("self.x", False)),
        ("x == None", None),
        ("x is y", None),
        ("x is None is y", None),
        ("not x", None),
    ],
)
def test_whether_a_condition_asks_for_none(test, asked):
    node = cst.parse_expression(test)
    found = asked_for_none(node)
    assert (found and (cst.Module([]).code_for_node(found[0]), found[1])) == asked


def test_parts_of_conditions():
    node = cst.parse_expression("a or b and c or not d")
    parts = [cst.Module([]).code_for_node(one) for one in joined(node, cst.Or)]
    assert parts == ["a", "b and c", "not d"]
    assert [*joined(node, cst.And)] == [node]
