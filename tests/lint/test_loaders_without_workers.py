"""Arguments of loaders that need workers, where there are none.

All programs are invented. ``# !XLA409`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

HEAD = """\
import argparse

import torch_xla
from torch.utils.data import DataLoader


"""

PROGRAMS = {
    "XLA409: no workers": """\
def loaders(rows, more):
    yield DataLoader(rows, prefetch_factor=4)  # !XLA409
    yield DataLoader(rows, num_workers=0, prefetch_factor=2)  # !XLA409
    yield DataLoader(rows, num_workers=0, persistent_workers=True)  # !XLA409
    yield DataLoader(rows, 8, False, None, None, 0, persistent_workers=True)  # !XLA409
    yield DataLoader(rows, prefetch_factor=None, persistent_workers=False)
    yield DataLoader(rows, num_workers=2, prefetch_factor=4, persistent_workers=True)
    yield DataLoader(rows, prefetch_factor=4, **more)
""",
    "XLA409: by default": """\
def main(rows):
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--ahead", type=int, default=8)
    args = parser.parse_args()
    yield DataLoader(rows, num_workers=args.num_workers, prefetch_factor=args.ahead)  # !XLA409
    yield DataLoader(rows, num_workers=args.readers, prefetch_factor=args.ahead)
    yield DataLoader(
        rows,
        num_workers=args.num_workers,
        prefetch_factor=args.ahead if args.num_workers > 0 else None,
        persistent_workers=args.num_workers > 0,
    )
    if args.num_workers > 0:
        yield DataLoader(rows, num_workers=args.num_workers, prefetch_factor=args.ahead)


def feed(rows, workers=0):
    return DataLoader(rows, num_workers=workers, persistent_workers=True)


def feed_all(rows):
    return feed(rows), feed(rows, 4)
""",
}

SCRIPT = """\
import argparse

import torch_xla
from feeding import feed, feed_more

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--ahead", type=int, default=50)
    args = parser.parse_args()
    print(feed(args), feed_more(args), torch_xla.device())
"""
FEEDING = """\
from torch.utils.data import DataLoader
import torch_xla


def feed(args):
    return DataLoader(args.rows, num_workers=args.workers, prefetch_factor=args.ahead)  # !XLA409


def feed_more(args):
    return DataLoader(args.rows, num_workers=args.readers, prefetch_factor=args.ahead)


def feed_else(other):
    return DataLoader(other.rows, num_workers=other.threads, prefetch_factor=other.ahead)
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, HEAD + PROGRAMS[name]) == marks(HEAD + PROGRAMS[name])


def test_options_that_another_file_declares(tmp_path):
    files = {"main.py": SCRIPT, "feeding.py": FEEDING}
    assert told_in_files(tmp_path, files, {"XLA409"}) == marks_in_files(files)
