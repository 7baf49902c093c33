"""Objects that a library makes of a checkpoint or a configuration: of which class, of what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules._settled import settled
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel

#: Methods of a class that make an object of it.
_MAKES = frozenset({"from_pretrained", "from_config", "_from_config"})
_READ = (0, "pretrained_model_name_or_path")


def takes_from(model: FileModel, package: str) -> bool:
    """Whether a file imports anything out of a package ("transformers.")."""
    return any(name.startswith(package) for name in model.names.imported())


def makes(call: CallSite) -> cst.BaseExpression | None:
    """The class that is made an object of: ``Net`` of ``Net()``, ``Net.from_pretrained(x)``."""
    return call.receiver if call.method in _MAKES else call.node.func


def library_class(model: FileModel, maker: cst.Call, package: str) -> str | None:
    """The last part of the name of that class, if it is one of a package ("diffusers.")."""
    home = model.file_with(maker)
    cls = makes(home.call(maker))
    dotted = (home.name(cls) or "") if cls is not None else ""
    return dotted.rpartition(".")[2] if dotted.startswith(package) else None


def checkpoints(model: FileModel, call: CallSite) -> Sequence[str]:
    """The names of the checkpoints that an object may be of, or whose configuration it has.

    None, unless all that the name may be is known.
    """
    read = call.argument(*_READ) or call.argument(0, "config")
    config = the_call(model, read) if read is not None else None
    if config is not None and config.method == "from_pretrained":
        read = config.argument(*_READ)
    names = settled(model, read) if read is not None else ()
    known = [name for name in names if isinstance(name, str)]
    return known if len(known) == len(names) else ()
