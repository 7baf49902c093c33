"""What rules about files share: which calls write one, and where to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel

#: Function to (position, keyword) of the path.
_WRITERS = {
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"),
    "numpy.savetxt": (0, "fname"),
    "torch.save": (1, "f"),
    "joblib.dump": (1, "filename"),
    "matplotlib.pyplot.savefig": (0, "fname"),
    "torchvision.utils.save_image": (1, "fp"),
    "urllib.request.urlretrieve": (1, "filename"),
    "torch.hub.download_url_to_file": (1, "dst"),
    "gdown.download": (1, "output"),
}
_METHODS = frozenset({"to_csv", "to_parquet", "to_pickle", "to_json", "write_text", "write_bytes"})
#: What models and tokenizers of transformers and diffusers write a folder with.
PRETRAINED = "save_pretrained"
SAVE = "torch_xla.core.xla_model.save"


def written_path(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The path that a call writes to.

    Args:
        model: The file.
        call: Any call.

    Returns:
        None if it writes no file, as far as is known.
    """
    if call.name in _WRITERS:
        return call.argument(*_WRITERS[call.name])
    if call.name == "builtins.open":
        mode = call.argument(1, "mode")
        text = model.literal(mode) if mode is not None else "r"
        writes = isinstance(text, str) and text[:1] in {"w", "x"}
        return call.argument(0, "file") if writes else None
    if call.name == SAVE:
        every = call.argument(2, "master_only")
        writes = every is not None and model.literal(every) is False
        return call.argument(1, "file_or_path") if writes else None
    if call.name is None and call.method == PRETRAINED:
        once = {"is_main_process", "save_function"} & call.keywords.keys()
        return None if once or call.has_star else call.argument(0, "save_directory")
    if call.name is None and call.method in _METHODS:
        if call.method.startswith("write_"):
            return call.receiver
        return call.argument(0, "path_or_buf")
    return None
