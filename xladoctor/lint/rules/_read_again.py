"""What stands at the top of a file, which each process that is spawned reads again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.rules._cores import is_main, starts_anew

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model import FileModel


def made_anew(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether each core makes for itself what stands at the top of a file.

    ``NET = xmp.MpModelWrapper(Net())`` above ``if __name__ == "__main__": xmp.spawn(train)``: each
    new process reads the file again, unless it is forked.
    """
    home = model.file_with(node)
    if home.is_notebook or model.function_of(node) is not None:
        return False
    starts = [one for part in (home, *home.linked) for one in part.calls(*SPAWNERS)]
    top = not any(is_main(model, guard) for guard in model.guards(node))
    return top and bool(starts) and all(starts_anew(model, one) for one in starts)
