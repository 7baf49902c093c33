"""Arguments of loaders that need workers, where there are none, and samples that need them.

All programs are invented. ``# !XLA409`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, rows, told, told_in_files

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


SAMPLES = """\
import cv2
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from datasets import load_dataset
from torch.utils.data import DataLoader, IterableDataset
from torchvision import datasets, transforms as T
from transformers import AutoTokenizer, Trainer, TrainingArguments
from own.training import PictureTrainer

tokenizer = AutoTokenizer.from_pretrained("gpt2")


class Stream(IterableDataset):
    def __init__(self, names):
        self.names = names

    def read(self, name):
        return torch.from_numpy(cv2.imread(name))


def pictures(rows):
    return {"x": [toned(row.convert("RGB")) for row in rows["image"]]}


def texts(rows):
    return {"x": [tokenizer(row)["input_ids"] for row in rows["text"]]}


def all_texts(rows):
    return tokenizer(rows["text"], padding="max_length", max_length=64)


def toned(picture):
    return T.Compose([T.ToTensor(), T.Normalize(0.5, 0.2)])(picture)


def augmented(crop=True):
    return T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor()])


def fit(net, data, size):
    device = torch_xla.device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    loader = DataLoader(data, batch_size=size, drop_last=True{more})
    for batch in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(batch).mean().backward()
        adam.step()


{program}
"""
LOADER = SAMPLES[: SAMPLES.index("loader =")].count("\n") + 1
STREAM = """\
class Own(Stream):
    def __iter__(self):
        {line}

    def samples(self):
        for name in self.names:
            yield self.read(name)

    def rows(self):
        for name in self.names:
            for row in self.read(name):
                yield row

    def packed(self):
        rest = []
        for text in self.names:
            rest += tokenizer.encode(text)
            while len(rest) > 64:
                yield torch.tensor(rest[:64])
                rest = rest[64:]

    def lines(self):
        with open(self.names[0]) as file:
            for line in file:
                yield torch.tensor([int(x) for x in line.split()])


def main(net, names):
    fit(net, Own(names), 8)
"""


@pytest.mark.parametrize(
    ("line", "slow"),
    [
        ("return self.samples()", True),
        ("return iter(self.samples())", True),
        ("yield from self.samples()", True),
        ("return map(self.read, self.names)", True),
        ("return (self.read(name) for name in self.names)", True),
        ("return self.packed()", True),
        ("return self.rows()", False),
        ("return self.lines()", False),
        ("return iter(self.names)", False),
    ],
)
def test_a_stream_that_reads_or_tokenizes_each_sample(line, slow):
    program = SAMPLES.replace("{program}", STREAM.replace("{line}", line))
    assert rows(program.replace("{more}", ""), "XLA606") == ([LOADER] if slow else [])
    assert rows(program.replace("{more}", ", num_workers=1"), "XLA606") == []


@pytest.mark.parametrize(
    ("made", "slow"),
    [
        ('datasets.CIFAR10("a", True, augmented()), 128', True),
        ('datasets.CIFAR100("a", transform=T.Compose([T.ToTensor(), T.Resize(224)])), 64', True),
        ('(datasets.CIFAR10 if net.tens else datasets.CIFAR100)("a", True, augmented()), 64', True),
        ('datasets.STL10("a", "train", None, T.RandAugment()), 256', True),
        ('datasets.CIFAR10("a", True, augmented()), 16', False),
        ('datasets.CIFAR10("a", True, augmented()), net.size', False),
        ('datasets.MNIST("a", transform=toned), 512', False),
        ('datasets.MNIST("a", transform=T.Compose([T.ToTensor()])), 512', False),
        ('datasets.MNIST("a"), 512', False),
        ('load_dataset("a", split="train").with_transform(pictures), 8', True),
        ('load_dataset("a").with_transform(pictures)["train"].shuffle(seed=1), 8', True),
        ('load_dataset("a", split="train").with_transform(lambda rows: pictures(rows)), 8', True),
        ('load_dataset("a", split="train").with_transform(texts), 8', True),
        ('load_dataset("a", split="train").with_transform(all_texts), 8', False),
        ('load_dataset("a", split="train").map(pictures), 8', False),
        ('load_dataset("a", split="train"), 8', False),
    ],
)
def test_samples_that_are_made_when_they_are_taken(made, slow):
    program = SAMPLES.replace("{program}", f"def main(net):\n    fit(net, {made})")
    assert rows(program.replace("{more}", ""), "XLA606") == ([LOADER] if slow else [])


def test_a_transform_that_is_set_later():
    program = """\
def main(net):
    rows = load_dataset("a", split="train")
    rows.set_transform(pictures)
    fit(net, rows, 8)


def other(net):
    rows = load_dataset("a", split="train")
    shown = load_dataset("a", split="test")
    shown.set_transform(pictures)
    fit(net, rows, 8)
"""
    text = SAMPLES.replace("{program}", program).replace("{more}", "")
    assert rows(text, "XLA606") == [LOADER]
    other = text.replace("    rows.set_transform(pictures)\n", "")
    assert rows(other, "XLA606") == []


@pytest.mark.parametrize(
    ("settings", "trainer", "slow"),
    [
        ("", "Trainer(net, args, train_dataset=rows)", True),
        ("", "PictureTrainer(model=net, args=args, train_dataset=rows)", True),
        ("dataloader_num_workers=0", "Trainer(net, args, train_dataset=rows)", True),
        ("dataloader_num_workers=4", "Trainer(net, args, train_dataset=rows)", False),
        ("**net.settings", "Trainer(net, args, train_dataset=rows)", False),
        ("", "Trainer(net, args, train_dataset=plain)", False),
        ("", "Trainer(net, args, eval_dataset=rows)", False),
    ],
)
def test_a_trainer_without_workers(settings, trainer, slow):
    program = f"""\
def main(net):
    args = TrainingArguments("out", {settings})
    plain = load_dataset("a", split="train")
    rows = plain.with_transform(pictures)
    {trainer}.train()
"""
    text = SAMPLES.replace("{program}", program).replace("{more}", "")
    here = text[: text.index("args = Tr")].count("\n") + 1
    assert rows(text, "XLA606") == ([here] if slow else [])
