"""What rules about files share: which calls write one, and where to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import patterns
from xladoctor.lint.model import Function

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Function to (position, keyword) of the path.
_WRITERS = {
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"),
    "numpy.savetxt": (0, "fname"),
    "torch.save": (1, "f"),
    "joblib.dump": (1, "filename"),
    "omegaconf.OmegaConf.save": (1, "f"),
    "matplotlib.pyplot.savefig": (0, "fname"),
    "torchvision.utils.save_image": (1, "fp"),
    "urllib.request.urlretrieve": (1, "filename"),
    "torch.hub.download_url_to_file": (1, "dst"),
    "gdown.download": (1, "output"),
    "wget.download": (1, "out"),
    "shutil.unpack_archive": (1, "extract_dir"),
    **{f"shutil.{name}": (1, "dst") for name in ("copy", "copy2", "copyfile", "copytree", "move")},
}
#: Methods of tables (pandas), to the keyword of the path.
_TABLES = {
    **dict.fromkeys(("to_csv", "to_json", "to_hdf", "to_pickle"), "path_or_buf"),
    **dict.fromkeys(("to_parquet", "to_feather", "to_stata"), "path"),
    "to_excel": "excel_writer",
}
_WRITE_TEXT = frozenset({"write_text", "write_bytes"})
_TO_WRITE = frozenset({"w", "wt", "wb", "w+", "x", "xt", "xb"})
#: Methods of archives, and of Google's storage, to (position, keyword) of the path.
_UNPACKED = {"extractall": (0, "path"), "download_to_filename": (0, "filename")}
#: What runs a command, and programs that fetch or unpack a file there.
RUNS = frozenset(
    {"os.system", *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output"))}
)
_FETCHING = patterns.lazy(
    r"^\s*(wget|curl\s.*(-[a-zA-Z]*[oO]\b|--output)|(gsutil|gcloud\s+storage|aws\s+s3)\s.*\b(cp|rsync|sync)\b"
    r"|unzip|tar\s+-?[a-z]*x|7z\s+x|git\s+clone|kaggle\s.*\bdownload\b)"
)
#: What models and tokenizers of transformers and diffusers write a folder with.
PRETRAINED = "save_pretrained"
SAVE = "torch_xla.core.xla_model.save"
#: How files of pictures are called.
_PICTURE = patterns.lazy(r"\.(png|jpe?g|gif|webp|bmp|tiff?)$", re.IGNORECASE)


def written_path(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The path that a call writes to.

    Args:
        model: The file.
        call: Any call.

    Returns:
        None if it writes no file, as far as is known.
    """
    if call.name in _WRITERS:
        path = call.argument(*_WRITERS[call.name])
        return None if path is None or _is_opened(model, path) else path
    if (file := opened(model, call)) is not None:
        path, mode = file
        # Who has a method ``open`` may take other words than ``pathlib.Path``.
        writes = mode[:1] in {"w", "x"} if call.name else mode in _TO_WRITE
        return path if writes else None
    if call.name == SAVE:
        every = call.argument(2, "master_only")
        writes = every is not None and model.literal(every) is False
        return call.argument(1, "file_or_path") if writes else None
    if call.name is None and call.method == PRETRAINED:
        once = {"is_main_process", "save_function"} & call.keywords.keys()
        return None if once or call.has_star else call.argument(0, "save_directory")
    if call.name is None and call.method == "save" and not isinstance(call.target, Function):
        path = call.argument(0, "fp")  # of a picture, whoever made it
        return path if path is not None and _is_picture(model, path) else None
    if call.method in _UNPACKED:
        return call.argument(*_UNPACKED[call.method])
    if call.name is None and call.method in _WRITE_TEXT:
        return call.receiver
    if call.name is None and call.method in _TABLES:
        return call.argument(0, _TABLES[call.method])
    return None


def opened(model: FileModel, call: CallSite) -> tuple[cst.BaseExpression | None, str] | None:
    """Path and mode of ``open(path, "w")`` and ``path.open("w")``; None for other calls.

    The mode is "" if it is not written.
    """
    if call.name == "builtins.open":
        path, mode = call.argument(0, "file"), call.argument(1, "mode")
    elif call.name is None and call.method == "open":  # of ``pathlib.Path``
        path, mode = call.receiver, call.argument(0, "mode")
    else:
        return None
    text = model.literal(mode) if mode is not None else "r"
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


def _is_picture(model: FileModel, path: cst.BaseExpression) -> bool:
    """``"out.png"``, ``f"{step}.png"``, ``os.path.join(folder, "out.png")``."""
    if isinstance(path, cst.Call) and model.name(path.func) == "os.path.join" and path.args:
        return _is_picture(model, path.args[-1].value)
    if isinstance(path, cst.FormattedString):
        last = path.parts[-1] if path.parts else None
        return isinstance(last, cst.FormattedStringText) and bool(_PICTURE.search(last.value))
    text = model.literal(path)
    return isinstance(text, str) and bool(_PICTURE.search(text))


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
    text = model.literal(node)
    return text if isinstance(text, str) else ""
