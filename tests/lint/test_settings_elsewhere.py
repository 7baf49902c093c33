"""Settings in a dictionary of a file that the program imports."""

from __future__ import annotations

import pytest
from rule_helpers import told_in_files

CONFIG = "SETTINGS = {'workers': 0, 'rate': 1e-3}\n"
TRAIN = """\
import config
import torch_xla
from config import SETTINGS
from torch.utils.data import DataLoader


def main(rows):
    flags = {}
    flags["workers"] = config.SETTINGS["workers"]
    flags["other"] = SETTINGS["workers"]
    CHANGE
    print(torch_xla.device())
    return DataLoader(rows, num_workers=GIVEN, prefetch_factor=2)
"""


def refused(folder, given, change="pass"):
    text = TRAIN.replace("GIVEN", given).replace("CHANGE", change)
    files = {"config.py": CONFIG, "train.py": text}
    return bool(told_in_files(folder, files, {"XLA409"}))


@pytest.mark.parametrize(
    "given",
    [
        'config.SETTINGS["workers"]',
        'SETTINGS["workers"]',
        'flags["workers"]',
        'flags["other"]',
    ],
)
def test_an_entry_of_another_file(tmp_path, given):
    assert refused(tmp_path, given)


@pytest.mark.parametrize(
    "change",
    [
        'config.SETTINGS["workers"] = None',
        "SETTINGS.update(read())",
        "SETTINGS[name()] = None",
    ],
)
def test_an_entry_that_the_program_changes(tmp_path, change):
    assert not refused(tmp_path, 'config.SETTINGS["workers"]', change)
