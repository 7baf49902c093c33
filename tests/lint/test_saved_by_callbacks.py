"""What callbacks of Lightning ask of the module that they are given, and what nobody asks of it.

All programs are invented. ``# !XLA721`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

WRITTEN = """\
import os
import torch_xla
import torch_xla.core.xla_model as xm
def run(index, folder, sheet, name):
    sheet.save({path})  {mark}
torch_xla.launch(run, args=("out", make(), "a"))
"""
PATHS = {
    'folder / "sheet.png"': True,
    'folder + "/" + name + ".jpg"': True,
    '"%s/%s.gif" % (folder, name)': True,
    '"{}.png".format(name)': True,
    'folder / f"{index}.png"': False,
    '"sheet-%d.png" % index': False,
    'folder / "weights"': False,
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_say_that_a_picture_is_written(path):
    program = WRITTEN.format(path=path, mark="# !XLA406" if PATHS[path] else "")
    assert told("XLA406: pictures", program) == marks(program)
