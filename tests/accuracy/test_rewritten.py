"""The rewrites change nothing of what a program does, and what they show is counted."""

import ast
import contextlib
import io
import json

import pytest

from tests.accuracy import rewritten
from tests.accuracy.mutation.rewrites import REWRITES
from tests.accuracy.mutation.trees import as_text

#: Every rewrite finds something to do in it, and it runs without anything of torch.
COUNTS = """
import functools


def scaled(value, by=2):
    return int(value * by)


def totals(rows, most, device):
    model = dict(seen=0, left=0)
    optimizer = []
    limit = 10
    step = 1
    for name, values in rows:
        size = len(list(values))
        total = sum(map(scaled, values)) // 2
        if total > limit and size:
            optimizer.append(functools.reduce(max, values))
        else:
            model["left"] += size
        if not name.strip().isupper():
            model.update(seen=model["seen"] + total, last=name)
    largest = sorted(optimizer, key=abs, reverse=True)
    if len(largest) > most:
        print("many", largest)
    print(scaled(step, by=limit))
    return sorted(model.items(), key=str, reverse=False)


class Last:
    def __init__(self, rows):
        self.rows = rows

    def name(self):
        return self.rows[-1][0]


def show(rows):
    for at, (name, values) in enumerate(rows):
        if at % 2 == 0:
            print(at, name.lower(), values)


if __name__ == "__main__":
    ROWS = [("a", [1, 2]), ("B", [30, 4]), ("c", []), ("d", [7, 8, 9])]
    print(totals(ROWS, 0, device=None))
    TOTALS = totals(ROWS, 1, device=None)
    SHOUT = ", ".join(["x", "y"]).upper()
    print(SHOUT)
    show(ROWS)
    print(Last(ROWS).name())
"""
#: What there is to tell of it does not depend on how it is written.
TRAINS = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader


class Rows(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, at):
        return torch.tensor(self.data[at]), 0


def batches(data, size):
    return DataLoader(Rows(data), batch_size=size, shuffle=True, pin_memory=True)


def main(index, data):
    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = batches(data, 8)
    seen = 0
    least = 0.1
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        seen += 1
        if loss.item() < least:
            print("done")
        else:
            print("on")
    if xm.is_master_ordinal():
        xm.rendezvous("over")


def last(model, x):
    return model(x).argmax(1)


if __name__ == "__main__":
    xmp.spawn(main, args=(range(100),), nprocs=8, start_method="fork")
"""
#: What a rewrite imports of packages, and what stands for it here.
STANDS_FOR = {
    "from tqdm.auto import tqdm as show_turns": "show_turns = lambda turns, disable: turns",
    "from torch.profiler import record_function": "import contextlib\n"
    "record_function = contextlib.nullcontext",
}


def ran(text):
    """What a program prints."""
    for line, other in STANDS_FOR.items():
        text = text.replace(line, other)
    with contextlib.redirect_stdout(io.StringIO()) as told:
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return told.getvalue()


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_changes_nothing_of_what_a_program_does(name):
    made = rewritten.rewritten(COUNTS, REWRITES[name])
    assert made is not None
    assert made != as_text(ast.parse(COUNTS))
    assert ran(made) == ran(COUNTS)
    assert len(ran(COUNTS).splitlines()) == 9


@pytest.mark.parametrize("name", sorted(REWRITES.keys() - {"receivers get a name first"}))
def test_all_is_told_of_a_program_in_any_spelling(name):
    tally = rewritten.Tally()
    tally.count("train.py", TRAINS)
    [row] = [row for row in tally.rows() if row.startswith(f"| {name} ")]
    assert row.endswith(" | 0 (0.000) | 0 |")
    assert int(row.split(" | ")[2]) >= 6


def test_what_comes_and_goes_is_counted_and_named(capsys, monkeypatch):
    def loses(tree):
        tree.body = [line for line in tree.body if not isinstance(line, ast.FunctionDef)]
        return 1

    monkeypatch.setattr(rewritten, "REWRITES", {"none": lambda tree: 0, "loses": loses})
    tally = rewritten.Tally(verbose=True)
    tally.count("train.py", TRAINS)
    none, row, both = tally.rows()[2:]
    assert none == "| none | 0 | 0 | 0 | 0 |"
    assert row.split(" | ")[1] == "1"
    assert int(row.split(" | ")[3].partition(" ")[0]) >= 5
    assert both == row.replace("loses", "all")
    assert "loses: train.py: gone" in capsys.readouterr().out


def test_the_files_of_a_set_are_counted_and_the_table_is_written(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "sets" / "Z1"
    folder.mkdir(parents=True)
    label = {"repo": "someone/program", "commit": "c0ffee", "path": "train.py", "line": 1}
    others = [label, label | {"path": "notes.ipynb"}, label | {"path": "old.py"}]
    (folder / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in others))
    kept = tmp_path / "kept"
    file = kept / "Z1" / "someone+program" / "c0ffee" / "train.py"
    file.parent.mkdir(parents=True)
    file.write_text(TRAINS)
    file.with_name("old.py").write_text("print 1\n")
    table = tmp_path / "accuracy.md"
    table.write_text(f"before\n{rewritten.BEGIN}\nold\n{rewritten.END}\nafter\n")
    monkeypatch.setattr(rewritten, "SETS", tmp_path / "sets")
    monkeypatch.setattr(rewritten, "KEPT", kept)
    monkeypatch.setattr(rewritten, "TABLE", table)
    assert rewritten.main(["--write"]) == 0
    rows = capsys.readouterr().out.strip().splitlines()
    assert len(rows) == len(REWRITES) + 3
    assert {row.split(" | ")[1] for row in rows[2:-1]} <= {"0", "1"}
    written = "\n".join(rows)
    assert table.read_text() == f"before\n{rewritten.BEGIN}\n{written}\n{rewritten.END}\nafter\n"
    assert rewritten.main(["Z9"]) == 2
    assert "Z9 is not in" in capsys.readouterr().err
