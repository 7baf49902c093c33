"""What rules about single calls share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.syntax import Function, children
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._sources import made_in, the_call
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Modules whose functions draw numbers of Python's.
DICE = ("random.", "numpy.random.", "secrets.")
#: What says the size of a tensor.
_SIZES = frozenset({"shape", "size", "ndim", "dim", "numel"})
#: What draws tensors of the host.
_TENSOR_DICE = frozenset(f"torch.{name}" for name in ("rand", "randint", "randn", "randperm"))
_DISTRIBUTIONS = "torch.distributions."
_GOES_OVER = frozenset(
    {*(f"builtins.{name}" for name in ("list", "tuple", "set", "sorted", "reversed", "enumerate")),
     "numpy.sort", "numpy.unique"}
)  # fmt: skip
#: What makes an object whose methods draw, and what those are called.
GENERATORS = frozenset(
    {"numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "random.SystemRandom"}
)
_DRAWS = frozenset(
    {"random", "integers", "randint", "randrange", "uniform", "choice", "choices", "sample",
     "beta", "betavariate", "normal", "gauss", "binomial", "exponential", "rand", "permutation",
     "standard_normal"}
)  # fmt: skip
#: Names and functions from where a number is used to where it is drawn.
_NAMES = 5
_PRECISION = frozenset({"amp", "fp16", "bf16", "float16", "bfloat16", "half", "mixed", "precision"})


def chosen_precision(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a setting turns on mixed precision here (``if args.fp16:``): it may be off on XLA."""
    return any(precision_is_asked(model, guard.test) for guard in model.guards(node))


def precision_is_asked(model: FileModel, test: cst.BaseExpression) -> bool:
    """Whether a condition is about mixed precision."""
    return bool(words(model.tree.text(test)) & _PRECISION)


def given_true(model: FileModel, call: CallSite, keyword: str) -> cst.BaseExpression | None:
    """The argument of that name if it is the literal ``True``.

    Also of a dictionary that the call unpacks, if no condition of its own sets it there.
    """
    value = given(model, call).get(keyword)
    if value is None or model.literal(value) is not True:
        return None
    return value if keyword in call.keywords or _is_set_with(model, value, call) else None


def _is_set_with(model: FileModel, value: cst.BaseExpression, call: CallSite) -> bool:
    """Whether what a dictionary holds is set wherever the call is made."""
    around_call = {guard.node for guard in model.guards(call.node)}
    return model.is_here(value) and all(guard.node in around_call for guard in model.guards(value))


def called(model: FileModel, node: cst.CSTNode) -> CallSite | None:
    """The call site that an expression or an expression statement is, or None."""
    if isinstance(node, cst.Expr):
        node = node.value
    return model.call(node) if isinstance(node, cst.Call) else None


def made_by(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """The call whose result a name holds, if it is bound exactly once; the call itself."""
    if isinstance(node, cst.Call):
        return model.call(node)
    if not isinstance(node, cst.Name | cst.Attribute):
        return None
    made = model.assigned_once(node)
    return model.call(made) if isinstance(made, cst.Call) else None


def is_read(model: FileModel, node: cst.Name) -> bool:
    """Whether it is a name of its own: no attribute of something, no keyword, nothing imported."""
    parent = model.parent(node)
    if isinstance(parent, cst.Attribute) and parent.attr is node:
        return False
    while isinstance(parent, cst.Attribute):
        parent = model.parent(parent)
    if isinstance(parent, cst.ImportFrom | cst.ImportAlias):
        return False
    return not (isinstance(parent, cst.Arg) and parent.keyword is node)


def is_global(function: Function, name: str) -> bool:
    """Whether a function says ``global name``."""
    lines = walk(function.node.body, into_functions=False)
    return any(
        item.name.value == name
        for line in lines
        if isinstance(line, cst.Global)
        for item in line.names
    )


def assigned(model: FileModel, name: cst.Name) -> list[cst.BaseExpression]:
    """What is assigned to a name, all of it; empty if it is bound in any other way too."""
    values = [*model.assigned_to(name)]
    return values if len(values) == len(model.bindings(name.value, name)) else []


def given_last(model: FileModel, name: cst.Name) -> cst.BaseExpression | None:
    """What a name holds where it stands, of all that its function assigns to it.

    The last assignment before, in a block around the name, if no loop brings back a later one.
    """
    order, around_name = model.tree.order, set(around(model, name))
    bindings = [item for item in model.bindings(name.value, name) if item.node in order]
    earlier = [item for item in bindings if order[item.node] < order[name]]
    before = [item for item in earlier if item.node not in around_name]  # ``x = x + 1``
    last = max(before, key=lambda item: order[item.node], default=None)
    if last is None or last.kind != "assign" or not isinstance(last.node, cst.BaseExpression):
        return None
    outer = list(around(model, last.node))
    block = next((node for node in outer if isinstance(node, cst.BaseSuite | cst.Module)), None)
    if block not in around_name or model.function_of(last.node) is not model.function_of(name):
        return None
    turns = [x for x in around_name if isinstance(x, cst.For | cst.While) and x not in outer]
    later = (item.node for item in bindings if order[item.node] > order[name])
    comes_back = any(loop in turns for node in later for loop in around(model, node))
    return None if comes_back else last.node


def throws_dice(model: FileModel) -> bool:
    """Whether the file draws numbers of Python's or NumPy's at all: ``drawn`` asks for no other."""
    return any(True for _ in model.calls(*(f"{module}*" for module in DICE)))


def may_be_drawn(model: FileModel) -> bool:
    """Whether the program draws numbers at all: ``drawn_in`` follows functions of linked files."""
    return any(
        throws_dice(part) or any(True for _ in part.calls(*_TENSOR_DICE, f"{_DISTRIBUTIONS}*"))
        for part in (model, *model.linked)
    )


def drawn(model: FileModel, node: cst.CSTNode) -> CallSite | None:
    """The call of Python's or NumPy's dice that an expression is, or all that a name is bound to.

    Of several (one for each loop) the last one before the use.
    """
    made: list[cst.BaseExpression] = []
    if isinstance(node, cst.Call):
        made = [node]
    elif isinstance(node, cst.Name):
        made = assigned(model, node)
    calls = [model.call(one) for one in made if isinstance(one, cst.Call)]
    dice = [call for call in calls if _throws(model, call)]
    if not dice or len(dice) != len(made):
        return None
    order = model.tree.order
    before = [call for call in dice if order.get(call.node, 0) <= order.get(node, 0)]
    return (before or dice)[-1]


def _throws(model: FileModel, call: CallSite) -> bool:
    """Whether a call draws a number: of a module, or of a generator that the program made."""
    if call.name is not None or call.receiver is None or call.method not in _DRAWS:
        return (call.name or "").startswith(DICE) and call.name not in GENERATORS
    return made_in(model, call.receiver, GENERATORS) is not None


def _draws_tensor(model: FileModel, call: CallSite) -> bool:
    """``torch.rand(1)`` on the host, and ``Beta(0.8, 0.8).sample()`` of numbers."""
    if call.name in _TENSOR_DICE:
        return "device" not in call.keywords
    if call.name is not None or call.receiver is None or call.method not in {"sample", "rsample"}:
        return False
    made = the_call(model, call.receiver)
    of_numbers = made is not None and not any(
        model.value(given).holds_device_tensor for given in made.positional
    )
    return made is not None and of_numbers and (made.name or "").startswith(_DISTRIBUTIONS)


def drawn_in(model: FileModel, node: cst.CSTNode, depth: int = _NAMES) -> CallSite | None:
    """A call of the dice that a number is computed of, also through names and functions.

    ``scale = random.uniform(1, 2)`` in one branch is enough, whatever the others set, unless the
    name is used in another one that sets it. Sizes of tensors (``x.shape``) are not drawn, whatever
    the tensors are computed of.
    """
    if isinstance(node, cst.Attribute):
        return _kept_drawn(model, node) if depth >= 0 else None
    sources: list[cst.CSTNode] = list(children(node))
    if isinstance(node, cst.Call):
        call = model.call(node)
        if _throws(model, call):
            return call
        if call.method in _SIZES:
            return None
        read = _read_of_dice(model, call)
        if read is not None:
            return read
        if isinstance(call.target, Function):
            sources = list(_given_back(call.target, None)) if depth > 0 else []
            depth -= 1
    elif isinstance(node, cst.Name):
        sources = _given_to(model, node) if depth > 0 else []
        depth -= 1
    return next(filter(None, (drawn_in(model, one, depth) for one in sources)), None)


def _read_of_dice(model: FileModel, call: CallSite) -> CallSite | None:
    """``torch.randint(0, 8, (1,)).item()``, ``int(torch.rand(1) * 8)``: PyTorch's, on the host."""
    read = call.receiver if call.method == "item" and call.name is None else None
    if call.name in {"builtins.int", "builtins.float"} and len(call.positional) == 1:
        read = call.positional[0]
    for part in (read, *walk(read)) if read is not None else ():
        made = model.call(part) if isinstance(part, cst.Call) else None
        if made is not None and _draws_tensor(model, made):
            return made
    return None


def drawn_rows(model: FileModel, node: cst.BaseExpression, depth: int = 2) -> CallSite | None:
    """The call that draws what a loop goes over on the host: an array, a list, a tensor.

    Also of a part of it, of ``.tolist()``, and of what goes over it in another order.
    """
    if isinstance(node, cst.Subscript):
        return drawn_rows(model, node.value, depth)
    if isinstance(node, cst.Name):
        made = assigned(model, node) if depth else []
        calls = [drawn_rows(model, one, depth - 1) for one in made]
        return calls[-1] if calls and None not in calls else None
    if not isinstance(node, cst.Call):
        return None
    call = model.call(node)
    if _throws(model, call) or _draws_tensor(model, call):
        return call
    if call.name in _GOES_OVER and call.positional:
        return drawn_rows(model, call.positional[0], depth)
    kept = call.name is None and call.method in {"tolist", "numpy", "sort", "astype", "copy"}
    return drawn_rows(model, call.receiver, depth) if kept and call.receiver is not None else None


def tossed(model: FileModel, node: cst.CSTNode) -> CallSite | None:
    """``torch.rand(1)`` on the host, or all that a name is bound to, as ``drawn`` for tensors."""
    made: list[cst.BaseExpression] = [node] if isinstance(node, cst.Call) else []
    if isinstance(node, cst.Name):
        made = assigned(model, node)
    calls = [model.call(one) for one in made if isinstance(one, cst.Call)]
    dice = [x if _draws_tensor(model, x) else _read_of_dice(model, x) for x in calls]
    return dice[-1] if dice and len(dice) == len(made) and None not in dice else None


def _given_to(model: FileModel, name: cst.Name) -> list[cst.CSTNode]:
    """What a name may hold where it stands: the last that it is given, if that is sure."""
    last = given_last(model, name)
    return [*assigned(model, name), *_unpacked(model, name)] if last is None else [last]


def _unpacked(model: FileModel, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """What a name gets of a tuple: ``low, high = box(size)`` of the program's function ``box``."""
    for binding in model.bindings(name.value, name):
        part = model.taken(binding.node)
        if part is None or not isinstance(part.value, cst.Call) or len(part.places) != 1:
            continue
        made = model.call(part.value).target
        if isinstance(part.line, cst.Assign) and isinstance(made, Function):
            yield from _given_back(made, part.places[0])


def _given_back(function: Function, place: int | None) -> Iterator[cst.BaseExpression]:
    """What a function returns; of a tuple what stands at a place."""
    for value in returned(function):
        if not isinstance(value, cst.Tuple) or place is None:
            yield value
        elif place < len(value.elements):
            yield value.elements[place].value


def _kept_drawn(model: FileModel, node: cst.Attribute) -> CallSite | None:
    """``self.size = random.choice(sizes)`` in a method that is called again and again."""
    calls: list[CallSite] = []
    for made in model.kept_in(node):
        function = model.function_of(made)
        if function is not None and function.name != "__init__":
            # An attribute can be made of itself: others are not followed from here.
            call = drawn_in(model, made, -1)
            calls += [] if call is None else [call]
    in_steps = (call for call in calls if model.hot_loop(call.node) is not None)
    return next(in_steps, calls[0] if calls else None)


def has_one_name(model: FileModel, made: cst.CSTNode) -> bool:
    """Whether a value is assigned to one target alone: ``a = b = []`` gives a list two names."""
    parent = model.parent(made)
    return isinstance(parent, cst.Assign) and len(parent.targets) == 1


def same_name(one: cst.BaseExpression | None, other: cst.BaseExpression | None) -> bool:
    """Whether both are the same plain name or chain of attributes."""
    if isinstance(one, cst.Name) and isinstance(other, cst.Name):
        return one.value == other.value
    if isinstance(one, cst.Attribute) and isinstance(other, cst.Attribute):
        return one.attr.value == other.attr.value and same_name(one.value, other.value)
    return False


def in_order(model: FileModel, *nodes: cst.CSTNode) -> bool:
    """Whether the nodes stand one after the other in the file."""
    order = model.program.tree.order  # of all its files: a caller may stand in another one
    places = [order[node] for node in nodes]
    return places == sorted(places)


def around(model: FileModel, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes around a node, innermost first."""
    parent = model.parent(node)
    while parent is not None:
        yield parent
        parent = model.parent(parent)


def in_two_branches(model: FileModel, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether two nodes stand in the two branches of one ``if``, of which one is taken."""
    outer, others = set(around(model, one)), set(around(model, other))
    return any(
        isinstance(node, cst.If) and (node.body in outer) != (node.body in others)
        for node in outer & others
    )


def reads(model: FileModel, name: cst.Name) -> Iterator[cst.Name]:
    """Where a name of the file is read, whatever it is bound to then."""
    bindings = model.bindings(name.value, name)
    for use in model.nodes(cst.Name):
        if use.value != name.value:
            continue
        parent = model.parent(use)
        if isinstance(parent, cst.AssignTarget | cst.Param | cst.NameItem):
            continue
        if isinstance(parent, cst.Arg) and parent.keyword is use:
            continue
        if isinstance(parent, cst.Attribute) and parent.attr is use:
            continue
        if model.bindings(use.value, use) is bindings:
            yield use


def bounds(node: cst.Subscript) -> Iterator[cst.BaseExpression]:
    """The ends of the slices between the brackets."""
    for element in node.slice:
        if isinstance(element.slice, cst.Slice):
            parts = (element.slice.lower, element.slice.upper)
            yield from (part for part in parts if part is not None)


def indices(node: cst.Subscript) -> Iterator[cst.BaseExpression]:
    """What stands between the brackets: numbers, and the ends of slices."""
    for element in node.slice:
        if isinstance(element.slice, cst.Index):
            yield element.slice.value
    yield from bounds(node)
