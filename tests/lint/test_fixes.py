"""Applying fixes, with invented rules that rename and remove."""

import json
import stat

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from work_helpers import calls_of

from xladoctor import catalogue
from xladoctor.findings import Edit, Position
from xladoctor.lint import engine, fixes, sources
from xladoctor.lint.model import FileModel
from xladoctor.lint.rewrites import imports


def rename(model):
    """``old(...)`` becomes ``new(...)`` and needs an import."""
    for call in model.calls():
        if isinstance(call.node.func, cst.Name) and call.node.func.value == "old":
            yield model.problem(
                call.node,
                "old is old",
                fix=model.fix(
                    "Use new",
                    model.replace(call.node.func, "new"),
                    model.add_import("import somewhere"),
                    safe=True,
                )
                or model.fix("Use new", model.replace(call.node.func, "new"), safe=True),
            )


def flags(model):
    """``flag=...`` is removed, ``extra`` appended, ``drop()`` deleted."""
    for call in model.calls():
        value = call.argument(None, "flag")
        if value is not None:
            edit = model.remove_argument(call.node, value)
            yield model.problem(value, "no flag", fix=model.fix("Remove it", edit, safe=False))
        if isinstance(call.node.func, cst.Name) and call.node.func.value == "drop":
            yield model.problem(
                call.node,
                "drop",
                fix=model.fix("Remove it", model.remove_statement(call.node), safe=True),
            )
        is_grow = isinstance(call.node.func, cst.Name) and call.node.func.value == "grow"
        if is_grow and call.argument(None, "extra") is None:
            edit = model.add_argument(call.node, "extra=1")
            yield model.problem(call.node, "grow", fix=model.fix("Add extra", edit, safe=True))


def lint(source):
    def both(model):
        yield from rename(model)
        yield from flags(model)

    result = engine.lint(source, rules={"XLA001": both})
    assert not result.failures
    return result


def fixed(text, *, unsafe=True, name="x.py"):
    data = text if isinstance(text, bytes) else text.encode()
    return fixes.fix(data, name, lint, unsafe=unsafe)


def test_nested_fixes_are_all_made():
    done = fixed("import torch_xla\nold(old(old(1)))\n")
    assert done.data == b"import torch_xla\nimport somewhere\nnew(new(new(1)))\n"
    assert (done.applied, done.result.findings, done.stable) == (3, (), True)


def test_an_unsafe_fix_waits_to_be_asked():
    text = b"import torch_xla\nf(flag=1)\n"
    assert fixed(text, unsafe=False).data == text
    assert fixed(text).data == b"import torch_xla\nf()\n"


def test_arguments_are_removed_with_their_comma():
    done = fixed(
        "import torch_xla\nf(1, flag=2)\nf(flag=2, a=1)\n"
        "f(\n    flag=2,\n    a=1,\n)\nf(a, flag=1,)\n"
    )
    assert done.data.decode().splitlines()[1:] == ["f(1)", "f(a=1)", "f(", "    a=1,", ")", "f(a,)"]


def test_an_argument_with_a_comment_behind_it_stays():
    text = "import torch_xla\nf(\n    flag=2,  # why\n    a=1,\n)\n"
    assert fixed(text).data.decode() == text


def test_arguments_are_added():
    done = fixed("import torch_xla\ngrow()\ngrow(1)\ngrow(\n    1,\n)\n")
    assert done.data.decode().splitlines()[1:] == [
        "grow(extra=1)", "grow(1, extra=1)", "grow(", "    1,", "    extra=1,", ")",
    ]  # fmt: skip


def test_statements_are_removed_and_a_block_keeps_one():
    done = fixed("import torch_xla\nx = 1\ndrop()\nif x:\n    drop()\ny = 2\ndrop(); z = 3\n")
    assert done.data.decode().splitlines() == [
        "import torch_xla", "x = 1", "if x:", "    pass", "y = 2", "drop(); z = 3",
    ]  # fmt: skip


def test_newlines_bom_and_encoding_stay():
    data = b"\xef\xbb\xbfimport torch_xla\r\nx = '\xc3\xb6'; old(1)\r\n"
    assert fixed(data).data == (
        b"\xef\xbb\xbfimport torch_xla\r\nimport somewhere\r\nx = '\xc3\xb6'; new(1)\r\n"
    )
    latin = "# coding: latin-1\nimport torch_xla\nx = '\u00f6'; old(1)\n".encode("latin-1")
    assert "'\u00f6'; new(1)" in fixed(latin).data.decode("latin-1")


def test_columns_count_code_points():
    done = fixed("import torch_xla\nx = '\U0001f525\u00e9'; old(1)\n")
    assert "x = '\U0001f525\u00e9'; new(1)" in done.data.decode()


def test_the_last_line_may_lack_its_newline():
    assert fixed("import torch_xla; old(1)").data.decode().count("new(1)") == 1


def test_a_fix_that_breaks_the_file_is_thrown_away():
    def broken(source):
        def rule(model):
            for call in model.calls():
                yield model.problem(
                    call.node, "x", fix=model.fix("x", model.replace(call.node, "(("), safe=True)
                )

        return engine.lint(source, rules={"XLA001": rule})

    data = b"import torch_xla\nold(1)\n"
    done = fixes.fix(data, "x.py", broken)
    assert done.data == data
    assert done.applied == 0


def test_fixes_that_fight_stop():
    def fight(source):
        def rule(model):
            for call in model.calls():
                other = {"a": "b", "b": "a"}[model.tree.text(call.node.func)]
                edit = model.replace(call.node.func, other)
                yield model.problem(call.node, "x", fix=model.fix("x", edit, safe=True))

        return engine.lint(source, rules={"XLA001": rule})

    done = fixes.fix(b"import torch_xla\na()\n", "x.py", fight)
    assert not done.stable


def test_cells_of_a_notebook_are_fixed_and_the_rest_stays():
    document = {
        "cells": [
            {
                "cell_type": "code",
                "source": ["!pip install x\n", "import torch_xla"],
                "outputs": [1],
            },
            {"cell_type": "markdown", "source": "# old(1)"},
            {"cell_type": "code", "source": "%time\nold(old(1))"},
        ],
        "metadata": {"kernelspec": {"language": "python", "name": "\u00f6"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    data = (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
    done = fixed(data, name="n.ipynb")
    document["cells"][2]["source"] = "%time\nnew(new(1))"
    assert json.loads(done.data)["cells"][2] == document["cells"][2]
    assert json.loads(done.data)["cells"][0]["source"][-1] == "import somewhere"
    assert json.loads(done.data)["cells"][1] == document["cells"][1]
    assert done.data.decode().startswith('{\n "cells"')
    assert done.result.findings == ()


@pytest.mark.parametrize(
    ("cell", "left"),
    [
        ("import os\nassert os.environ['COLAB_TPU_ADDR'], 'choose a TPU'", "import os"),
        ("import os\nassert os.environ['COLAB_TPU_ADDR']\nprint(1)", "import os\nprint(1)"),
        ("assert os.environ['COLAB_TPU_ADDR']", ""),
        ("print(1)\n\nassert os.environ['COLAB_TPU_ADDR']\n", "print(1)\n\n"),
    ],
)
def test_the_last_statement_of_a_cell_can_go(cell, left):
    cells = ["import os", cell, "import torch_xla\nprint(torch_xla.device())"]
    document = {
        "cells": [{"cell_type": "code", "source": text} for text in cells],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    done = fixes.fix(json.dumps(document).encode(), "n.ipynb", engine.lint, unsafe=True)
    sources = [item["source"] for item in json.loads(done.data)["cells"]]
    assert sources == [cells[0], left, cells[2]]


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "run.py"
    path.write_text("x")
    path.chmod(0o755)
    link = tmp_path / "link.py"
    link.symlink_to(path)
    fixes.write(link, b"y")
    assert path.read_text() == "y"
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert sorted(item.name for item in tmp_path.iterdir()) == ["link.py", "run.py"]


PIECES = st.sampled_from(
    ["old(1)", "old(old(2))", "f(flag=1)", "f(a, flag=old(1), b=2)", "drop()", "grow()",
     "grow(old(flag=1))", "x = [old(i) for i in grow(3)]", "if old(1):\n    drop()", "# old(1)",
     "s = 'old(1)'", "grow(\n    1,  # one\n    2,\n)"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=5), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_fixing_ends_parses_and_changes_nothing_more(pieces, newline, unsafe):
    text = ("\n".join(["import torch_xla", *pieces]) + "\n").replace("\n", newline)
    once = fixed(text, unsafe=unsafe)
    assert once.stable
    assert sources.syntax_error(once.data.decode()) is None
    assert fixed(once.data, unsafe=unsafe).data == once.data
    assert once.data.count(b"\r\n") == (once.data.count(b"\n") if newline == "\r\n" else 0)


@given(st.text(alphabet="ab\n\r\u00e9", max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_an_edit_changes_only_its_range(text, row, column):
    lines = text.replace("\r", "").splitlines(keepends=True)
    text = "".join(lines)
    if row >= len(lines) or column > len(lines[row].rstrip("\n")):
        return
    place = Position(row + 1, column + 1)
    after = fixes.apply(text, [Edit("XY", place, place)])
    assert after.replace("XY", "", 1) == text


def test_one_fix_that_breaks_the_file_does_not_stop_the_others():
    def both(model):
        yield from rename(model)
        for call in model.calls():
            if model.tree.text(call.node.func) == "odd":
                yield model.problem(
                    call.node, "x", fix=model.fix("x", model.replace(call.node, "(("), safe=True)
                )

    def linted(source):
        return engine.lint(source, rules={"XLA001": both})

    done = fixes.fix(b"import torch_xla\nodd(2)\nold(1)\n", "x.py", linted)
    assert done.data == b"import torch_xla\nimport somewhere\nodd(2)\nnew(1)\n"
    assert [item.message for item in done.made] == ["old is old"]


def test_a_notebook_keeps_every_byte_outside_the_lines_that_change():
    # Invented: escapes, numbers, repeated keys and spacing that no JSON writer would give back.
    text = """{ "metadata":{"a" : 1.00e5,"kernelspec":{"language":"python"}}, "cells" : [
  {"cell_type":"code", "outputs":[{"text":"\\u00fc\\/ old(1)"}],"source" :[
      "import torch_xla  # \\u00fc\\n",
      "x = '\\/'; old(1)\\n", "y = 2"
  ] , "execution_count":null},
  {"cell_type":"code","source":"old(2) # \\u00e9","outputs":[]},
  {"cell_type":"code","source":[],"outputs":[]}
 ], "nbformat":4 }  """
    done = fixed(text, name="n.ipynb")
    assert done.data.decode() == text.replace(
        '"x = \'\\/\'; old(1)\\n", "y = 2"',
        '"import somewhere\\n",\n      "x = \'/\'; new(1)\\n",\n      "y = 2"',
    ).replace('"old(2) # \\u00e9"', '"new(2) # \\u00e9"')


def test_pictures_in_a_notebook_cost_no_work():
    def notebook(picture):
        source = "import torch_xla\nold(1)"
        cells = [{"cell_type": "code", "source": source, "outputs": [{"x": picture}]}]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()

    data = notebook("A" * 50_000_000)
    fixed(notebook(""), name="n.ipynb")  # what is done once is done
    work = [
        calls_of(lambda text=text: fixed(text, name="n.ipynb")) for text in (notebook("A"), data)
    ]
    assert work[0] == work[1]
    done = fixed(data, name="n.ipynb")
    assert done.data == data.replace(b"\\nold(1)", b"\\nimport somewhere\\nnew(1)")


def test_a_file_that_is_read_only_is_left_alone(tmp_path):
    path = tmp_path / "run.py"
    path.write_text("x")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        fixes.write(path, b"y")
    assert path.read_text() == "x"


WINDOWS = (
    "# -*- coding: windows-1252 -*-\r\nimport torch_xla\r\nif 1:\r\n\ts = '\u20ac'; old(1)\r\n"
)


def test_windows_1252_tabs_and_crlf_stay():
    after = WINDOWS.replace("old(1)", "new(1)").replace(
        "torch_xla\r\n", "torch_xla\r\nimport somewhere\r\n"
    )
    assert fixed(WINDOWS.encode("cp1252")).data == after.encode("cp1252")


def examples():
    """The faulty code of all rule pages: what the real fixes are for."""
    return [
        example.source
        for page in catalogue.pages().values()
        for example in page.examples
        if example.kind == "bad"
    ]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_real_fixes_end_parse_and_leave_nothing_fixable(data, newline, unsafe):
    """Any two pages' code in one file, so that the fixes of several rules meet."""
    pieces = data.draw(st.lists(st.sampled_from(examples()), min_size=1, max_size=2))
    text = "\n".join(pieces).replace("\n", newline)

    def every_rule(source):
        return engine.lint(source)

    once = fixes.fix(text.encode(), "x.py", every_rule, unsafe=unsafe)
    assert once.stable
    after = once.data.decode()
    assert sources.syntax_error(after) is None
    assert not [x for x in once.result.findings if fixes.is_applicable(x, unsafe=unsafe)]
    assert fixes.fix(once.data, "x.py", every_rule, unsafe=unsafe).data == once.data
    if not once.made:
        assert after == text


def test_fixes_that_empty_a_block_together_are_made_one_after_the_other():
    done = fixed("import torch_xla\nif x:\n    drop()\n    drop()\nold(1)\n")
    wanted = "import torch_xla\nimport somewhere\nif x:\n    pass\nnew(1)\n"
    assert done.data.decode() == wanted
    assert (done.applied, done.stable) == (3, True)


def test_what_needs_torch_is_imported_behind_it():
    text = "import os\n\nos.system('install torch')\n\nimport torch\nimport torch_xla\n\nprint(1)\n"
    model = FileModel(text)
    call = next(iter(model.calls("builtins.print")))
    _, edits = imports.spell(model, call.node, "torch.utils.data.DistributedSampler")
    assert [edit.start.row for edit in edits] == [6]
    _, edits = imports.spell(model, call.node, "copy.deepcopy")
    assert [edit.start.row for edit in edits] == [1]
