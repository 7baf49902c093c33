"""Reading files: encodings, notebooks, what cannot be read."""

import json

import pytest

from xladoctor.lint import engine, sources


def notebook(*cells):
    """A notebook with the given cells; a cell that begins with '# md' is Markdown."""
    return json.dumps(
        {
            "cells": [
                {
                    "cell_type": "markdown" if text.startswith("# md") else "code",
                    "source": text.splitlines(keepends=True),
                    "metadata": {},
                }
                for text in cells
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    ).encode()


def codes(source):
    return [(item.code, item.locations[0].row) for item in engine.lint(source).findings]


def test_reads_the_declared_encoding():
    data = "# -*- coding: latin-1 -*-\nname = 'Gr\u00f6\u00dfe'\n".encode("latin-1")
    source = sources.from_bytes(data, "x.py")
    assert "Gr\u00f6\u00dfe" in source.text
    assert source.encoding == "iso-8859-1"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"ok = 1\nname = '\xff'\n", "not UTF-8 text (byte 0xff in line 2)"),
        (b"# coding: klingon\nx = 1\n", "not text in a known encoding"),
        (b"\xff\xfex\x00", "UTF-16"),
    ],
)
def test_bytes_that_are_no_text_are_a_finding(data, says):
    result = engine.lint(sources.from_bytes(data, "x.py"))
    assert [item.code for item in result.findings] == ["XLA001"]
    assert says in result.findings[0].message
    assert not result.failures


def test_a_file_that_does_not_parse_is_a_finding_at_its_line():
    assert codes(sources.from_bytes(b"x = 1\nprint 'loss'\n", "x.py")) == [("XLA001", 2)]
    assert codes(sources.from_bytes(b"import torch_xla\nfor x in:\n", "x.py")) == [("XLA001", 2)]


def test_a_null_byte_is_a_finding():
    assert [code for code, _ in codes(sources.from_bytes(b"x = 1\x00\n", "x.py"))] == ["XLA001"]


@pytest.mark.parametrize(
    "expression",
    ["(" * 3000 + "1" + ")" * 3000, "-" * 3000 + "1", "1" + " + 1" * 3000, "x" + ".a" * 3000],
)
def test_very_deep_nesting_is_a_finding_not_a_crash(expression):
    result = engine.lint(
        sources.from_bytes(f"import torch_xla\nx = {expression}\n".encode(), "x.py")
    )
    assert [item.code for item in result.findings] == ["XLA001"]
    assert not result.failures


def test_an_unreadable_file_is_a_finding(tmp_path):
    path = tmp_path / "gone.py"
    assert [item.message for item in sources.read(path).unreadable] == [
        "cannot be read: No such file or directory"
    ]


def test_magics_and_shell_lines_do_not_move_lines():
    source = sources.from_bytes(
        notebook(
            "%matplotlib inline\n!pip install torch_xla \\\n    --upgrade\nimport torch\n",
            "# md text\n",
            "for i in range(3):\n    !echo $i\n    print(i)\nfiles = !ls\ntorch.rand?\n",
        ),
        "n.ipynb",
    )
    assert not source.unreadable
    assert [cell.index for cell in source.cells] == [0, 2]
    rows = source.text.splitlines()
    assert rows[3] == "import torch"
    second = source.cells[1].first
    assert rows[second : second + 2] == ["    pass", "    print(i)"]
    assert (2, "!pip install torch_xla \\") in source.shell


def test_a_modulo_at_the_start_of_a_line_is_no_magic():
    source = sources.from_bytes(notebook("x = (7\n% 4)\n"), "n.ipynb")
    assert source.text.splitlines()[1] == "% 4)"
    assert not source.shell


def test_a_cell_of_another_language_is_left_out():
    source = sources.from_bytes(
        notebook("%%bash\nexport XLA_USE_BF16=1\nfi\n", "x = 1\n"), "n.ipynb"
    )
    assert not source.unreadable
    assert (2, "export XLA_USE_BF16=1") in source.shell
    assert "x = 1" in source.text


def test_a_broken_cell_does_not_stop_the_others():
    source = sources.from_bytes(
        notebook("import torch_xla\n", "for x in\n", "await thing()\n"), "n.ipynb"
    )
    [finding] = engine.lint(source).findings
    assert (finding.code, finding.locations[0].cell, finding.locations[0].row) == ("XLA001", 1, 1)
    assert "await thing()" in source.text


NEWER = 'row = {"a": 1}\nprint(f"{row["a"]}")\nxm.xrt_world_size()\n'


def test_a_cell_for_a_newer_python_is_linted():
    source = sources.from_bytes(
        notebook("import torch_xla.core.xla_model as xm", NEWER, "print(f'{row')"), "x.ipynb"
    )
    assert [item.cell for item in source.unreadable] == [2]
    assert [code for code, _ in codes(source)] == ["XLA801", "XLA001"]


def test_a_notebook_saved_as_python_for_a_newer_python_is_linted():
    text = f"!nvidia-smi\nimport torch_xla.core.xla_model as xm\n{NEWER}"
    assert codes(sources.from_bytes(text.encode(), "x.py")) == [("XLA801", 5)]


def test_places_in_a_notebook_count_from_the_cell():
    source = sources.from_bytes(notebook("a = 1\nb = 2\n", "c = 3\n"), "n.ipynb")
    row = source.text.splitlines().index("c = 3") + 1
    place = source.location(sources.Position(row, 1), sources.Position(row, 2))
    assert (place.cell, place.row) == (1, 1)


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"not json", b'{"cells": 3}', b"\xff\xfe"])
def test_what_is_no_notebook_is_a_finding(data):
    assert [item.code for item in engine.lint(sources.from_bytes(data, "n.ipynb")).findings] == [
        "XLA001"
    ]
