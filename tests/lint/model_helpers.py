"""Reading the model by marks in the code: ``x  # <- name`` gives the expression of that line."""

import textwrap

import libcst as cst

from xladoctor.lint.model import FileModel


def model_of(code):
    return FileModel(textwrap.dedent(code))


def marked(model, mark):
    """The expression (or whole call) that stands on the line marked ``# <- mark``."""
    rows = model.text.splitlines()
    [row] = [index for index, line in enumerate(rows, 1) if line.rstrip().endswith(f"# <- {mark}")]
    for node in model.tree.scopes:
        if (
            isinstance(node, cst.Expr)
            and model.tree.range(node).end.line == row
            and model.tree.range(node).start.line <= row
        ):
            return node.value
    raise AssertionError(f"no expression statement ends on the line of {mark}")
