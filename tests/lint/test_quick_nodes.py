"""LibCST's nodes made with less work: the same trees, text and types as LibCST makes itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import libcst as cst
import pytest

from xladoctor.lint.model import quick_nodes, syntax

FILES = sorted(Path(quick_nodes.__file__).parents[2].rglob("*.py"))

#: All that Python's grammar has, and what white space may stand where.
TEXT = '''#!/usr/bin/env python
"""Doc."""
from __future__ import annotations
import a . b as c, d ; from . import (e, f as g,)

@decorator ( 1 )
async def function(x, /, y: int = 1, *args, z=2, **kw) -> None :  # comment

    # own line
    async with a as b, c: pass
    async for i in x: await i
    else:
            return
    return lambda *a, b = 3, **k: (yield x)
class K ( B , metaclass = M ) :
    """Doc."""; x: int; y : int = 2
    @property
    def p(self): return self . q [ 1 : 2 : 3 , ... ]
try :
    x = y = { ** a , 'b' : 1 } ; del x , y
except (A , B) as e : raise X from e
except : pass
finally : assert x , "y"
if a : pass
elif b or not c and - d < e in f is not g : pass
else : global h
while True : break
with (open(x) as y, z): nonlocal_ = f"{x!r:>{w}} {y=}" "b" r\'c\'; z = b"c"
match x :
    case {"a": [1, *_], **r} | K(y=2) if z: print ( * a , ** b , k = 1 )
    case _: x = [i for i in y if i] + {i for i in y}, {i: j for i, j in k}, (i for i in y)
(x := 1) ; a @= b ; c = 1_0 + 0x1f ** 2.5e3 // 3j ; d = x if y else z\\
   + 1
'''


@pytest.mark.parametrize("text", ["", "\n", "x", "# only\n", "x = 1\r\ny = 2\r\n", TEXT])
def test_trees_write_the_text_they_were_made_of(text):
    assert quick_nodes.parse(text).code == text


def test_trees_of_our_own_files_write_their_text():
    for path in FILES:
        text = path.read_text("utf-8")
        assert quick_nodes.parse(text).code == text, path


def test_trees_equal_those_of_libcst_itself(tmp_path):
    files = [str(path) for path in FILES[::40]]
    (tmp_path / "all.py").write_text(TEXT, "utf-8")
    files.append(str(tmp_path / "all.py"))
    script = (
        "import sys, json, hashlib, libcst\n"
        "read = lambda name: open(name, encoding='utf-8').read()\n"
        "made = [repr(libcst.parse_module(read(name))) for name in sys.argv[1:]]\n"
        "print(json.dumps([hashlib.sha256(text.encode()).hexdigest() for text in made]))\n"
    )
    ours = script.replace("import sys", "from xladoctor.lint.model import quick_nodes\nimport sys")
    ours = ours.replace("libcst.parse_module", "quick_nodes.parse")
    assert _answer(script, files) == _answer(ours, files)


def test_libcst_has_its_own_classes_after_parsing_and_after_an_error():
    quick_nodes.parse("x = 1\n")
    with pytest.raises(cst.ParserSyntaxError):
        quick_nodes.parse("x = = 1\n")
    assert isinstance(cst.SimpleWhitespace(" "), cst.SimpleWhitespace)
    assert all(isinstance(getattr(cst, name), type) for name in ("Dot", "Comma", "Newline"))


def test_nodes_can_be_made_by_hand():
    assert cst.Module([]).code_for_node(cst.Call(cst.Name("f"), [cst.Arg(cst.Integer("1"))])) == (
        "f(1)"
    )


def _answer(script: str, files: list[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_walk_passes_by_no_parts():
    assert all(not syntax.children(kind("1")) for kind in syntax._LEAVES - {cst.Pass})
    assert not syntax._LEAVES & {*syntax._COLLECTED, cst.Call, cst.SimpleString}
