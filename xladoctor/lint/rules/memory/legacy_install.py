"""XLA716: the installation of a torch_xla that current TPUs and Pythons do not run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import patterns
from xladoctor.lint.rewrites.shell import comment_out, write_row
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import is_of_ipython

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.problems import Place

_RUNS = (
    "os.system",
    "os.popen",
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.Popen",
)
_OF_TORCH = "these wheels of PyTorch are for Python 3.6 or 3.7, beside a torch_xla of the same days"
#: What a command fetches or installs, and what was wrong with it.
_LEGACY = (
    (r"env-setup\.py", "env-setup.py installs the XRT runtime, which was removed in torch_xla 2.1"),
    (r"cloud[-_]tpu[-_]client", "cloud-tpu-client is for TPU nodes, which no longer exist"),
    (
        r"tpu-pytorch/wheels|torch_xla-(?:1\.\d|nightly)|torch_xla-[^\s/'\"]*-cp3[67]\b",
        "these wheels of torch_xla are for Python 3.6 to 3.8 and the XRT runtime",
    ),
    (r"\btorch(?:vision|audio)?-[^\s/'\"]*-cp3[67]\b", _OF_TORCH),
    (r"\btorch[-_]xla(?:\[\w+\])?==\s*1\.", "torch_xla 1.x has the XRT runtime, removed in 2.1"),
)
_PATTERNS = tuple((re.compile(pattern), why) for pattern, why in _LEGACY)
#: The first release without XRT.
_SINCE = (2, 1)
#: From here on pip finds libtpu without being told where it is (tried with 2.9).
_LIBTPU_SINCE = (2, 9)
_LIBTPU = "-f https://storage.googleapis.com/libtpu-releases/index.html"
#: A command that only fetches a file.
_FETCHES = patterns.lazy(r"^(?:curl|wget)\b[^;&|]*$")
#: One that runs the script that was fetched, or installs packages.
_RUNS_SETUP = patterns.lazy(r"^(?:sudo\s+)?python3?\s+\S*env-setup\.py\b[^;&|]*$")
_INSTALLS = patterns.lazy(r"^(?:python3?\s+-m\s+)?pip3?\s+install\s+(?P<what>[^;&|]+)$")
_CURRENT = patterns.lazy(r"\bpip3?\s+install\b.*\btorch[-_]xla\b")
#: ``$WHEEL``, ``${WHEEL}`` and ``{WHEEL}``, by which IPython puts a variable into a command.
_VARIABLE = patterns.lazy(r"\$\{?([A-Za-z_]\w*)\}?|\{([A-Za-z_]\w*)\}")
#: Words of a pip command that the new one makes superfluous. Anything else would be lost.
_REPLACED = patterns.lazy(
    r"^(?:-q|-U|--quiet|--upgrade|--user|cloud[-_]tpu[-_]client(?:[=<>~].*)?|"
    r"torch(?:vision|audio)?==[\w.+]+|torch[-_]xla(?:\[\w+\])?==[\w.+]+|"
    r"\S*\btorch(?:vision|audio|_xla)?-[^/\s]*\.whl)$"
)


@rule("XLA716")
def legacy_install(model: FileModel) -> Iterator[Problem]:
    """Find commands that install torch_xla as in the days of TPU nodes."""
    if model.target < _SINCE:
        return
    fixes = _Commands(model)
    for number, line in model.shell:
        why = _why(model, line, filled=line.startswith("!"))
        if why is not None:
            place = model.place_of_row(number)
            yield _problem(model, place, why, fixes.of_line(number, line))
    for call in model.calls():
        if _runs(call):
            text = " ".join(_texts(model, call.node))
            why = _why(model, text, filled=is_of_ipython(call))
            if why is not None:
                yield _problem(model, call.node, why, fixes.of_call(call))


def _runs(call: CallSite) -> bool:
    return call.name in _RUNS or call.method in {"system", "getoutput"}


class _Commands:
    """The fixes of a file's commands: the first installation is replaced, the others are left out.

    Args:
        model: The file.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model
        commands = [line for _, line in model.shell]
        commands += [" ".join(_texts(model, call.node)) for call in model.calls() if _runs(call)]
        self._installed = any(_CURRENT.search(x) and _legacy(x) is None for x in commands)

    def of_line(self, row: int, line: str) -> Fix | None:
        """The fix of a shell line of a notebook."""
        shell = line.startswith("!")
        command = line[1:].strip() if shell or line.startswith("%pip") else line.strip()
        written = self._instead(command)
        if written is None:
            return None
        if not written:
            return self._fix("Leave it out", comment_out(self._model, row, line))
        content = f"{line[0]}{written}" if line[0] in "!%" else written
        return self._fix("Install what there is today", write_row(self._model, row, line, content))

    def of_call(self, call: CallSite) -> Fix | None:
        """The fix of ``os.system("...")`` with one command."""
        model, node = self._model, call.node
        words = node.args[0].value if len(node.args) == 1 and not node.args[0].star else None
        text = model.literal(words) if isinstance(words, cst.SimpleString) else None
        if call.method != "system" or not isinstance(text, str):
            return None
        written = self._instead(text.strip())
        if written is None or words is None:
            return None
        if not written:
            alone = isinstance(model.parent(node), cst.Expr)
            return self._fix("Leave it out", model.remove_statement(node)) if alone else None
        return self._fix("Install what there is today", model.replace(words, f'"{written}"'))

    def _fix(self, message: str, edit: Edit | None) -> Fix | None:
        return self._model.fix(message, edit, safe=False)

    def _instead(self, command: str) -> str | None:
        """What to run in place of a command: nothing (""), or the installation of today."""
        if _FETCHES.match(command):
            return ""
        installs = _INSTALLS.match(command)
        if installs is None and not _RUNS_SETUP.match(command):
            return None
        if installs is not None:
            words = (word.strip("\"'") for word in installs["what"].split())
            if not all(_REPLACED.match(word) for word in words):
                return None  # it installs something else, too
        if self._installed:
            return ""
        self._installed = True
        version = ".".join(map(str, self._model.target[:2]))
        where = "" if self._model.target >= _LIBTPU_SINCE else f" {_LIBTPU}"
        return f"pip install torch=={version}.0 'torch_xla[tpu]=={version}.0'{where}"


def _filled_in(model: FileModel, line: str) -> str:
    """A command with what the notebook put into its variables: ``pip install "$WHEEL"``."""
    if _VARIABLE.search(line) is None:
        return line
    written = model.once(_written)
    return _VARIABLE.sub(lambda match: written.get(match[1] or match[2], match[0]), line)


def _written(model: FileModel) -> dict[str, str]:
    """The texts that the names of a notebook hold."""
    return {
        target.target.value: "".join(_parts(model, node.value))
        for node in model.nodes(cst.Assign)
        if isinstance(node, cst.Assign) and model.function_of(node) is None
        for target in node.targets
        if isinstance(target.target, cst.Name)
    }


def _parts(model: FileModel, node: cst.BaseExpression) -> Iterator[str]:
    """The text of ``"..."``, and the template of ``"torch_xla-{}.whl".format(version)``."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        node = node.func.value if node.func.attr.value == "format" else node
    text = model.literal(node)
    if isinstance(text, str):
        yield text
    elif isinstance(node, cst.FormattedString):
        for part in node.parts:
            yield part.value if isinstance(part, cst.FormattedStringText) else "{}"


def _why(model: FileModel, line: str, *, filled: bool) -> str | None:
    """What is wrong with a command, as it is or with what the notebook put into its variables."""
    why = _legacy(line)
    if why is None and filled:
        why = _legacy(_filled_in(model, line))
    return why if model.is_xla or why is not _OF_TORCH else None


def _legacy(line: str) -> str | None:
    return next((why for pattern, why in _PATTERNS if pattern.search(line)), None)


def _texts(model: FileModel, call: cst.Call) -> Iterator[str]:
    """The literal words of a command: one text, or a list of them."""
    for argument in call.args:
        items = [argument.value]
        if isinstance(argument.value, cst.List | cst.Tuple):
            items = [element.value for element in argument.value.elements]
        for item in items:
            value = model.literal(item)
            if isinstance(value, str):
                yield value


def _problem(model: FileModel, place: Place | cst.CSTNode, why: str, fix: Fix | None) -> Problem:
    return model.problem(
        place,
        f"{why}: on a TPU machine of today it fails or breaks the installation",
        suggestion="pip install torch==2.9.0 'torch_xla[tpu]==2.9.0' (equal versions of both)",
        fix=fix,
    )
