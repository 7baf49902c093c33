"""What rules about files share: which calls write one, and where to."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from xladoctor import catalogue, patterns
from xladoctor.lint.model import Function
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.rules._sources import sources, the_source
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.lint.model import CallSite, FileModel

_TO_WRITE = frozenset({"w", "wt", "wb", "w+", "x", "xt", "xb"})
_PATHS = frozenset({"path", "file", "dir", "folder", "directory", "checkpoint", "ckpt", "root"})
#: What runs a command, and programs that fetch, copy or unpack a file there.
RUNS = frozenset(
    {"os.system", *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output"))}
)
_FETCHING = patterns.lazy(
    r"^\s*(wget|curl\s.*(-[a-zA-Z]*[oO]\b|--output)|(gsutil|gcloud\s+storage|aws\s+s3)\s.*\b(cp|rsync|sync)\b"
    r"|unzip|tar\s+-?[a-z]*x|7z\s+x|git\s+clone|(kaggle|hf|huggingface-cli)\s.*\bdownload\b"
    r"|(cp|mv|rsync|zip)\s)"
)
#: What models and tokenizers of transformers and diffusers write a folder with.
PRETRAINED = "save_pretrained"
SAVE = "torch_xla.core.xla_model.save"
#: How files of pictures, cards, vocabularies, documents and charts are called.
_KIND = patterns.lazy(
    r"\.(png|jpe?g|gif|webp|bmp|tiff?|md|json|txt|html|pdf|svg|xlsx)$", re.IGNORECASE
)
#: Names from a path to the text that says what it is.
_NAMES = 4
#: Methods of archives and of storage, which keep their name where a library's function opens them.
_UNPACKED = frozenset({"extractall", "download_to_filename"})


def written_path(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The path that a call writes to.

    Args:
        model: The file.
        call: Any call.

    Returns:
        None if it writes no file, as far as is known.
    """
    functions = _rows("function")
    if call.name in functions:
        path = call.argument(*functions[call.name]["path"])
        return None if path is None or _is_opened(model, path) else path
    if (file := opened(model, call)) is not None:
        path, mode = file
        # Who has a method ``open`` may take other words than ``pathlib.Path``.
        opener = _rows("opener").get(call.name or "")
        writes = mode.startswith(tuple(opener["writes"])) if opener else mode in _TO_WRITE
        return path if writes else None
    if call.name == SAVE:
        every = call.argument(2, "master_only")
        writes = every is not None and model.literal(every) is False
        return call.argument(1, "file_or_path") if writes else None
    return _by_method(model, call)


def _by_method(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    row = _rows("method").get(call.method or "")
    if call.method in _UNPACKED and row is not None:
        return call.argument(*row["path"])
    if call.name is not None or isinstance(call.target, Function):
        return None
    if call.method == PRETRAINED:
        # transformers 5 takes no ``save_function``; before, it was for files that are pickled.
        once = "is_main_process" in call.keywords or "safe_serialization" in call.keywords
        return None if once or call.has_star else call.argument(0, "save_directory")
    if call.method == "save":
        path = call.argument(0, "fp")  # of a picture or a model card, whoever made it
        return path if path is not None and _says_what(model, path) else None
    if row is None:
        return None
    return call.argument(*row["path"]) if "path" in row else call.receiver


def uploaded_path(_: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The file of this machine that a client of some storage sends there, or None."""
    row = _rows("uploader").get(call.method or "")
    if row is None or isinstance(call.target, Function):
        return None
    return call.argument(*row["path"])


@functools.cache
def _rows(kind: str) -> dict[str, Mapping[str, Any]]:
    """The rows of ``tables/writers.toml`` by the names that they tell of."""
    return {name: row for row in catalogue.table("writers")[kind] for name in row["names"]}


class Once(NamedTuple):
    """What a call does that can be done once.

    Attributes:
        path: To what.
        does: "make", "remove", "remove all" or "move".
    """

    path: cst.BaseExpression
    does: str


def done_once(model: FileModel, call: CallSite) -> Once | None:
    """A folder that is made and must not be there yet, or what is moved or removed and must be.

    Args:
        model: The file.
        call: Any call.

    Returns:
        None for other calls, and for those that say that they need not be the first.
    """
    row = _rows("once").get(call.name or "")
    path = call.argument(*row["path"]) if row is not None else None
    if row is None and call.name is None:
        row = _methods_once().get(call.method or "")
        moves = row is not None and row["does"] == "move"
        fits = len(call.positional) == int(moves) and _is_path(model, call.receiver, sure=moves)
        path = call.receiver if fits else None
    if row is None or path is None or call.has_star or isinstance(call.target, Function):
        return None
    if "unless" not in row:
        return Once(path, row["does"])
    allowed = call.keywords.get(row["unless"])
    if allowed is None and len(call.positional) > 1:
        return None  # ``os.makedirs(path, 0o755, True)``, ``shutil.rmtree(path, True)``
    return Once(path, row["does"]) if allowed is None or model.literal(allowed) is False else None


def _is_path(model: FileModel, node: cst.BaseExpression | None, *, sure: bool) -> bool:
    """``Path("out")``, ``folder / "logs"`` and what is called so; shared memory has no path.

    ``sure``: its name is not enough.
    """
    made = the_source(model, node) if node is not None else None
    if isinstance(made, cst.BinaryOperation):
        return isinstance(made.operator, cst.Divide)
    if isinstance(made, cst.Call):
        return (model.name(made.func) or "").startswith("pathlib.")
    return made is not None and not sure and not _PATHS.isdisjoint(words(last_name(made)))


@functools.cache
def _methods_once() -> dict[str, Mapping[str, Any]]:
    return {name: row for row in catalogue.table("writers")["once"] for name in row["methods"]}


def opened(model: FileModel, call: CallSite) -> tuple[cst.BaseExpression | None, str] | None:
    """Path and mode of ``open(path, "w")`` and ``path.open("w")``; None for other calls.

    The mode is "" if it is not written.
    """
    row = _rows("opener").get(call.name or "")
    if row is not None:
        path, mode, text = call.argument(*row["path"]), call.argument(*row["mode"]), row["default"]
    elif call.name is None and call.method == "open":  # of ``pathlib.Path``
        path, mode, text = call.receiver, call.argument(0, "mode"), "r"
    else:
        return None
    text = model.literal(mode) if mode is not None else text
    return path, text if isinstance(text, str) else ""


def _is_opened(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a name is ``file`` of ``with open(path, "wb") as file``: that opens what is written.

    What is opened in another way (``gzip.open``) counts as the path.
    """
    bindings = model.bindings(node.value, node) if isinstance(node, cst.Name) else ()
    items = [_with_item(model, binding.node) for binding in bindings]
    calls = [one.item for one in items if one is not None and isinstance(one.item, cst.Call)]
    return len(calls) == len(bindings) > 0 and all(
        opened(model, model.call(call)) is not None for call in calls
    )


def _with_item(model: FileModel, target: cst.CSTNode | None) -> cst.WithItem | None:
    named = model.parent(target) if target is not None else None
    item = model.parent(named) if isinstance(named, cst.AsName) else None
    return item if isinstance(item, cst.WithItem) else None


def _says_what(model: FileModel, path: cst.BaseExpression, depth: int = _NAMES) -> bool:
    """``"out.png"``, ``f"{step}.png"``, ``os.path.join(folder, "out.png")``, ``name + ".png"``.

    Also ``folder / "out.png"``, ``"%d.png" % step``, ``"{}.png".format(step)``.
    """
    if isinstance(path, cst.Call) and model.name(path.func) == "os.path.join" and path.args:
        return _says_what(model, path.args[-1].value, depth)
    if isinstance(path, cst.Call) and isinstance(path.func, cst.Attribute):
        written = path.func.value
        if path.func.attr.value == "format" and isinstance(written, cst.SimpleString):
            return _says_what(model, written, depth)
    if isinstance(path, cst.BinaryOperation):
        shaped = isinstance(path.operator, cst.Modulo)
        return _says_what(model, path.left if shaped else path.right, depth)
    if isinstance(path, cst.FormattedString):
        last = path.parts[-1] if path.parts else None
        return isinstance(last, cst.FormattedStringText) and bool(_KIND.search(last.value))
    made = [one for one in sources(model, path) or () if one is not path] if depth else []
    if made:  # ``name = name % step`` is made of itself
        return all(_says_what(model, one, depth - 1) for one in made)
    text = model.literal(path)
    return isinstance(text, str) and bool(_KIND.search(text))


def fetching_command(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The command of a call that has a program fetch or unpack a file.

    ``os.system("wget https://...")``, ``subprocess.run(["gsutil", "cp", source, target])``.
    """
    command = call.argument(0, "args") if call.name in RUNS else None
    if command is None:
        return None
    parts = command.elements if isinstance(command, cst.List | cst.Tuple) else ()
    written = " ".join(_begins(model, part.value) for part in parts) or _begins(model, command)
    return command if _FETCHING.search(written) else None


def _begins(model: FileModel, node: cst.BaseExpression) -> str:
    """The text that an expression begins with, as far as it is written."""
    if isinstance(node, cst.FormattedString):
        first = node.parts[0] if node.parts else None
        return first.value if isinstance(first, cst.FormattedStringText) else ""
    if isinstance(node, cst.BinaryOperation):
        return _begins(model, node.left)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return _begins(model, node.func.value) if node.func.attr.value == "format" else ""
    text = model.literal(node)
    return text if isinstance(text, str) else ""
