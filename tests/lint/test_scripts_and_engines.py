"""What scripts and engines showed: globals, data that a loop cuts itself, helpers of other files.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rule_helpers import found, marks

from xladoctor.lint import run
from xladoctor.lint.engine import LintOptions

_HEAD = """\
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch import nn
"""

FAULTS = {
    "device that another function sets": """\
device = None
def train(model, loader, optimizer):
    for x, y in loader:
        x, y = x.to(device), y.to(device)  # !XLA603
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
def main(args, model, loader):
    global device
    device = xm.xla_device() if args.tpu else "cpu"
    model = model.to(device)
    train(model, loader, torch.optim.SGD(model.parameters(), 0.1))
""",
    "windows that a sampler cuts": """\
class Windows:
    def __init__(self, tokens, size, device):
        self.tokens, self.size = tokens, size
        self.device = device
    def sample(self):
        where = torch.randint(0, len(self.tokens), (self.size,))
        x = torch.stack([self.tokens[int(i)][0] for i in where])
        return x.to(self.device, non_blocking=True)  # !XLA603
def main(tokens, model):
    device = xm.xla_device()
    batches = Windows(tokens, 8, device)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        optimizer.zero_grad()
        model(batches.sample()).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
""",
    "slices of a tensor that is handed in": """\
def main(images, labels, model):
    device = xm.xla_device()
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for start in range(0, len(images), 32):
            x = images[start:start + 32].to(device)  # !XLA603
            y = labels[start:start + 32].to(device)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            xm.optimizer_step(optimizer, barrier=True)
""",
    "rows in a drawn order": """\
def main(images, model):
    device = xm.xla_device()
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(10):
        order = torch.randperm(len(images))
        for start in range(0, len(images), 32):
            picked = order[start:start + 32]
            optimizer.zero_grad()
            model(images[picked].to(device)).mean().backward()  # !XLA603
            xm.optimizer_step(optimizer, barrier=True)
""",
    "a generator that moves what it is given": """\
class Painter:
    def __init__(self, config, net, rows):
        self.config, self.net = config, net.to(config.DEVICE)
        self.rows = torch.utils.data.DataLoader(rows, batch_size=1)
    def move(self, *parts):
        return (part.to(self.config.DEVICE) for part in parts)  # !XLA603
    @torch.no_grad()
    def test(self):
        self.net.eval()
        for items in self.rows:
            images, masks = self.move(*items)
            print((self.net(images) * masks).sum().cpu())  # !XLA101
""",
    "a list of results made one tensor": """\
@torch.no_grad()
def evaluate(loader, model, device):
    model.eval()
    rows = []
    for images in pl.MpDeviceLoader(loader, device):
        scores = [out.mean() for out in model(images)]
        rows.append(torch.tensor(scores))  # !XLA101
    return rows
def main(loader, model):
    device = xm.xla_device()
    evaluate(loader, model.to(device), device)
""",
    "a metric of torchmetrics for each row": """\
from torchmetrics import SpearmanCorrCoef
def rank(a, b):
    metric, scores = SpearmanCorrCoef(), []
    for i in range(a.shape[0]):
        scores.append(metric(a[i], b[i]))
    return torch.tensor(scores)  # !XLA101
@torch.no_grad()
def evaluate(loader, model, device):
    model.eval()
    kept = []
    for images, maps in pl.MpDeviceLoader(loader, device):
        kept.append(rank(model(images), maps))
    return kept
def main(loader, model):
    device = xm.xla_device()
    evaluate(loader, model.to(device), device)
""",
    "a meeting in a step closure of an endless loop": """\
def train(model, loader, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    device = xm.xla_device()
    while True:
        for x in pl.MpDeviceLoader(loader, device):
            results = {"loss": model(x).mean()}
            optimizer.zero_grad()
            results["loss"].backward()
            xm.optimizer_step(optimizer)
            def report():
                for name, value in results.items():
                    mean = xm.mesh_reduce(name, value, np.mean)  # !XLA423
                    xm.master_print(name, mean)
            xm.add_step_closure(report)
""",
    "an evaluation of drawn windows that nothing ends": """\
@torch.no_grad()
def evaluate(model, tokens, device):
    model.eval()
    total = torch.zeros((), device=device)
    for _ in range(200):  # !XLA301
        where = torch.randint(0, len(tokens) - 64, (8,))
        x = torch.stack([tokens[i:i + 64] for i in where]).to(device)  # !XLA603
        total = total + model(x).mean()
    torch_xla.sync()
    return total.item()
def main(tokens, model):
    device = xm.xla_device()
    print(evaluate(model.to(device), tokens, device))
""",
    "a loader that is wrapped anew in each epoch": """\
def train(index, loader, model):
    device = xm.xla_device()
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        loader = pl.ParallelLoader(loader, [device]).per_device_loader(device)
        for x in loader:
            optimizer.zero_grad()
            loss = model(x).mean()
            print(loss.item())  # !XLA101
            loss.backward()
            xm.optimizer_step(optimizer)
""",
}

FINE = {
    "other devices, said with a comparison": """\
def train(args, model, loader, optimizer):
    device = xm.xla_device()
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = model(x).mean()
        if args.tpu != True:
            print(loss.item())
        if args.use_tpu is False:
            print(loss.item())
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "weights that are collected and then sent": """\
def send(model):
    scale = 1 if xm.is_master_ordinal() else 0
    sent = []
    for p in model.parameters():
        p.data.mul_(scale)
        sent.append(p.data)
    xm.all_reduce(xm.REDUCE_SUM, sent)
    xm.mark_step()
def _mp_fn(index, args):
    torch.manual_seed(args.seed + index)
    device = xm.xla_device()
    model = nn.Linear(4, 4).to(device)
    send(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(args.loader, device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)
xmp.spawn(_mp_fn, args=(None,))
""",
    "an evaluation now and then, and behind the last step": """\
def train(config, model, loader, optimizer, device):
    batches = iter(pl.MpDeviceLoader(loader, device))
    def evaluate():
        with torch.no_grad():
            return model(next(batches)).mean().item()
    for step in range(config["max_steps"]):
        optimizer.zero_grad()
        model(next(batches)).mean().backward()
        xm.optimizer_step(optimizer)
        done = step + 1
        if done % config["eval_every"] == 0 or done == config["max_steps"]:
            print(evaluate())
""",
    "data that lies on the device": """\
def main(images, model):
    device = xm.xla_device()
    images = images.to(device)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for start in range(0, 1024, 32):
        x = images[start:start + 32].to(device)
        optimizer.zero_grad()
        model(x).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
""",
    "numbers of a schedule at places on the device": """\
def train(model, loader, betas, optimizer):
    device = xm.xla_device()
    model = model.to(device)
    for x in pl.MpDeviceLoader(loader, device):
        t = torch.randint(0, 1000, (x.shape[0],), device=device)
        optimizer.zero_grad()
        (model(x) * betas[t].to(device)).mean().backward()
        xm.optimizer_step(optimizer)
""",
    "a list of numbers made one tensor": """\
@torch.no_grad()
def evaluate(loader, model, device):
    sizes = []
    for images in pl.MpDeviceLoader(loader, device):
        sizes.append(images.shape[0])
        weights = torch.tensor([size / 2 for size in sizes])
        print(weights)
""",
    "a meeting in a closure that is added now and then": """\
def train(model, loader, optimizer, device):
    while True:
        for step, x in enumerate(pl.MpDeviceLoader(loader, device)):
            loss = model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            def report():
                xm.master_print(xm.mesh_reduce("loss", loss, np.mean))
            if step % 100 == 0:
                xm.add_step_closure(report)
""",
}
FINE["a master that is asked for through int and bool"] = """\
def is_master():
    try:
        return int(xm.get_ordinal()) == 0
    except Exception:
        return bool(xm.is_master_ordinal())
def say(*words):
    if is_master():
        print(*words)
def total(value):
    try:
        reduced = xm.all_reduce(xm.REDUCE_SUM, value)
    except Exception:
        reduced = value
    return reduced
def seed_all(seed):
    torch.manual_seed(seed)
def _mp_fn(index, args):
    seed_all(args.seed)
    device = xm.xla_device()
    model = nn.Linear(4, 4).to(device)
    seed_all(args.seed + index)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(args.loader, device):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        if total(loss.isnan().float()) > 0:  # noqa: XLA104
            continue
        xm.optimizer_step(optimizer)
    say("done")
xmp.spawn(_mp_fn, args=(None,))
"""
FINE["a save in a closure and behind the loop"] = """\
class Trainer:
    def save(self, models):
        if not xm.is_master_ordinal() or self.debug:
            return
        for name, model in models.items():
            xm.save(model.state_dict(), name)
    def train(self, model, loader, optimizer):
        for step, x in enumerate(loader):
            optimizer.zero_grad()
            model(x).sum().backward()
            xm.optimizer_step(optimizer)
            def report():
                if step % 1000 == 0:
                    self.save({"net": model})
            xm.add_step_closure(report)
        self.save({"net": model})
"""
FAULTS["a seed of each core through a helper"] = """\
def seed_all(seed):
    torch.manual_seed(seed)
def _mp_fn(index, args):
    seed_all(args.seed + index)
    device = xm.xla_device()
    model = nn.Linear(4, 4).to(device)  # !XLA426
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(args.loader, device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)
xmp.spawn(_mp_fn, args=(None,))
"""
FAULTS["a read in the branch in which the optimizer steps"] = """\
def train(model, loader, optimizer, device, accumulate, every):
    total = torch.tensor(0.0, device=device)
    for i, x in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = model(x).mean() / accumulate
        loss.backward()
        total += loss.detach()
        if (i + 1) % accumulate == 0:
            xm.optimizer_step(optimizer)
            optimizer.zero_grad()
            mean = xm.mesh_reduce("loss", total.item(), sum)  # !XLA101 XLA423
            if i % every == 0:
                xm.master_print(mean)
"""
FAULTS["a read behind the batches that only add up"] = """\
def train(model, loader, optimizer, device, accumulate):
    for i, x in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = model(x).mean() / accumulate
        loss.backward()
        if (i + 1) % accumulate != 0:
            continue
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
        xm.master_print(loss.item())  # !XLA101
"""
FAULTS["a logger that reads whatever it is given by name"] = """\
class Meters:
    def __init__(self):
        self.sums = {}
    def update(self, **values):
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                value = value.item()  # !XLA101
            self.sums[name] = self.sums.get(name, 0.0) + value
def train(model, loader, optimizer, device):
    meters = Meters()
    for x, y in pl.MpDeviceLoader(loader, device):
        out = model(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(out, y).backward()
        xm.optimizer_step(optimizer)
        meters.update(accuracy=(out.argmax(1) == y).float().mean(), rate=0.1)
"""
FAULTS["a core that stops by the loss of a batch with names"] = """\
def _mp_fn(index, args):
    device = xm.xla_device()
    torch.manual_seed(1)
    model = args.build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in pl.MpDeviceLoader(args.loader, device):
        batch = {key: value.to(device) for key, value in batch.items()}
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
        if loss < 0.1:
            break  # !XLA420
xmp.spawn(_mp_fn, args=(None,))
"""
_COLLATED = """\
from torch.utils.data import DataLoader
def train(data, model, optimizer, device):
    rows = DataLoader(data, batch_size=8, drop_last=True, collate_fn=collate)
    for x in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        model(x).mean().backward()
        xm.optimizer_step(optimizer)
"""
FAULTS["rows filled up to the longest"] = """\
def collate(rows):
    n = max(len(row["ids"]) for row in rows)  # !XLA209
    return torch.tensor([row["ids"] + [0] * (n - len(row["ids"])) for row in rows])
"""
FAULTS["texts of pairs filled up to a limit"] = """\
def collate(batch):
    texts, labels = zip(*batch)
    n = min(max(map(len, texts)), 512)  # !XLA209
    ids = []
    for row in texts:
        ids.append(row + [0] * (n - len(row)))
    return torch.LongTensor(ids)
"""
FAULTS["lengths that are listed first"] = """\
def collate(rows):
    seqs = [row[0] for row in rows]
    lengths = [len(seq) for seq in seqs]
    n = max(lengths)  # !XLA209
    out = torch.zeros(len(rows), n)
    for i, seq in enumerate(seqs):
        out[i, :len(seq)] = seq
    return out
"""
FAULTS["a helper that measures"] = """\
def longest(rows):
    return max(len(row) for row in rows)
def collate(batch):
    n = longest(batch)  # !XLA209
    return torch.tensor([row + [0] * (n - len(row)) for row in batch])
"""
FINE["rows filled up to one length"] = """\
def collate(rows):
    return torch.tensor([row + [0] * (512 - len(row)) for row in rows])
"""
FINE["rows filled up to a few lengths"] = """\
def collate(rows):
    n = max(len(row) for row in rows)
    n = -(-n // 128) * 128
    return torch.tensor([row + [0] * (n - len(row)) for row in rows])
"""
for _texts in (FAULTS, FINE):
    _texts.update(
        {name: text + _COLLATED for name, text in _texts.items() if "def collate(" in text}
    )
FAULTS["models of a library made of their configurations"] = """\
import torch.distributed as dist
import torch_xla.distributed.xla_backend
from transformers import AutoConfig, AutoModelForCausalLM, BertForPreTraining
def build(path):
    config = AutoConfig.from_pretrained(path)
    return BertForPreTraining(config)
def train(flags):
    device = xm.xla_device()
    model = build(flags.model)
    model.to(device)  # !XLA426
    small = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(flags.model))
    small.to(device)  # !XLA426
    optimizer = torch.optim.AdamW([*model.parameters(), *small.parameters()], lr=1e-4)
    for x in pl.MpDeviceLoader(flags.loader, device):
        optimizer.zero_grad()
        (model(x).loss + small(x).loss).backward()
        xm.optimizer_step(optimizer)
if __name__ == "__main__":
    dist.init_process_group("xla")
    train(None)
"""
FINE["a generator that has its turn now and then"] = """\
def train(nets, steps, loader, device):
    for i, x in enumerate(pl.MpDeviceLoader(loader, device)):
        lost = nets[0](x).mean()
        lost.backward()
        steps[0].zero_grad()
        optimizer_d, optimizer_g = steps
        xm.optimizer_step(optimizer_d)
        if i % 5 == 0:
            made = nets[1](x).mean()
            optimizer_g.zero_grad()
            made.backward()
            xm.optimizer_step(optimizer_g)
            xm.master_print(made.item())
"""
_RULES = ("XLA101", "XLA209", "XLA301", "XLA401", "XLA405", "XLA420", "XLA423", "XLA426", "XLA603")


@pytest.mark.parametrize("name", FAULTS)
def test_found(name):
    program = _HEAD + FAULTS[name]
    assert {item for item in found(program) if item[1] in _RULES} == marks(program)


@pytest.mark.parametrize("name", FINE)
def test_silent(name):
    assert [item for item in found(_HEAD + FINE[name]) if item[1] in _RULES] == []


def told(folder, files):
    """(file, row, code) of what is found in files that are linted together."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    results = run.lint_files(sorted(folder.rglob("*.py")), run.Plan(LintOptions()), jobs=1)
    return {
        (Path(item.filename).name, place.locations[0].row, place.code)
        for item in results
        for place in item.result.findings
        if place.code in _RULES
    }


_CONFIG = """\
class Config:
    def __init__(self, path):
        self.path = path
"""
_WRITE = """\
from PIL import Image
def write(picture, path):
    Image.fromarray(picture.cpu().numpy()).save(path)
"""
_WORK = """\
import torch
from torch.utils.data import DataLoader
from .write import write
class Painter:
    def __init__(self, config, rows):
        self.config, self.rows = config, rows
        self.net = torch.nn.Linear(3, 3).to(config.DEVICE)
    @torch.no_grad()
    def test(self):
        self.net.eval()
        for images in DataLoader(self.rows, batch_size=1):
            write(self.net(images.to(self.config.DEVICE)), "x.png")
    def cuda(self):
        self.net.cuda()
"""
_SCRIPT = """\
import torch_xla.core.xla_model as xm
from work.painter import Painter
from work.config import Config
def main(rows):
    config = Config("x.yaml")
    config.DEVICE = xm.xla_device()
    Painter(config, rows).test()
"""


@pytest.mark.parametrize("script", ["main.py", "scripts/main.py"])
def test_files_without_a_mark_of_their_project_are_linked(tmp_path, script):
    files = {
        "work/__init__.py": "",
        "work/config.py": _CONFIG,
        "work/write.py": _WRITE,
        "work/painter.py": _WORK,
        script: _SCRIPT,
    }
    # What the script sets, the class of another file uses, and a third one reads.
    assert told(tmp_path, files) == {("painter.py", 12, "XLA603"), ("write.py", 3, "XLA101")}


_SAMPLER = """\
import torch
class Windows:
    def __init__(self, tokens, device: torch.device):
        self.tokens, self.device = tokens, device
    def sample(self):
        where = torch.randint(0, len(self.tokens), (8,))
        return torch.stack([self.tokens[int(i)] for i in where]).to(self.device)
"""
_LOOP = """\
import torch
import torch_xla.core.xla_model as xm
from sampler import Windows
def main(tokens, model):
    device = xm.xla_device()
    batches = Windows(tokens, device)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        optimizer.zero_grad()
        model(batches.sample()).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
"""


def test_a_sampler_of_another_file_moves_what_it_cuts(tmp_path):
    assert told(tmp_path, {"sampler.py": _SAMPLER, "main.py": _LOOP}) == {
        ("sampler.py", 7, "XLA603")
    }


_SETTINGS = """\
import torch_xla.core.xla_model as xm
IS_MAIN = lambda: xm.is_master_ordinal(local=False)
"""
_PRINTS = """\
import torch_xla.distributed.xla_multiprocessing as xmp
import settings
def _mp_fn(index):
    if settings.IS_MAIN():
        print("begin")
    print("go")
xmp.spawn(_mp_fn)
"""


def test_a_lambda_of_another_file_asks_for_the_master(tmp_path):
    files = {"settings.py": _SETTINGS, "main.py": _PRINTS}
    assert told(tmp_path, files) == {("main.py", 6, "XLA401")}


_SHARED = """\
import torch
def measure(outputs, lengths=None):
    if lengths is None:
        lengths = outputs.max().item()
    return lengths
"""
_ON_XLA = """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from shared import measure
def train(model, loader, optimizer, device):
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        out = model(x)
        measure(out, lengths=40)
        out.sum().backward()
        xm.optimizer_step(optimizer)
"""
_ON_CUDA = """\
from shared import measure
def train(model, loader, optimizer):
    model.cuda()
    for x in loader:
        optimizer.zero_grad()
        out = model(x.cuda())
        measure(out)
        out.sum().backward()
        optimizer.step()
"""


def test_what_a_script_for_cuda_runs_of_a_shared_helper_is_not_told(tmp_path):
    files = {"shared.py": _SHARED, "on_tpu.py": _ON_XLA, "on_gpu.py": _ON_CUDA}
    # Nor are its own reads: the helper that both share makes them one program for the linter.
    files["on_gpu.py"] = files["on_gpu.py"].replace("measure(out)", "print(measure(out).item())")
    assert told(tmp_path, files) == set()
    files["on_tpu.py"] = _ON_XLA.replace(", lengths=40", "")
    assert told(tmp_path, files) == {("shared.py", 4, "XLA101")}


TIMED = """\
import time
def run(model, device, rows, count):
    times = []
    with torch.no_grad():
        for i in range(count):
            start = time.perf_counter()
            out = model(rows.to(device))
            {wait}
            times.append(time.perf_counter() - start)
    return times
def main(rows):
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(dtype=torch.bfloat16).to(device)
    return run(model, device, rows, 10)
"""


@pytest.mark.parametrize(
    ("wait", "told"),
    [("pass", [16]), ('out.to("cpu")', []), ('xm.master_print(f"{out.sum():.3f}")', [])],
)
def test_a_read_ends_what_is_timed_however_it_is_written(wait, told):
    program = _HEAD + TIMED.format(wait=wait)
    assert [row for row, code in found(program) if code == "XLA112"] == told


NUMBERS = """\
class Net(nn.Module):
    def __init__(self, special_ids, scale):
        super().__init__()
        self.special_ids = special_ids
        self.scale = scale
        self.means = [0.485, 0.456, 0.406]
        self.counts = []
        self.layer = nn.Linear(3, 3)
    def forward(self, x):
        ids = torch.tensor(self.special_ids, device=x.device)  # !XLA604
        mean = torch.tensor(self.means).to(x.device)  # !XLA604
        width = torch.Tensor([1.0, 2.0, 3.0]).to(x.device)  # !XLA604
        self.counts = [x.shape[0]]
        counts = torch.tensor(self.counts, device=x.device)
        return self.layer((x - mean) / width * self.scale) + ids.sum() + counts
def train(loader):
    device = xm.xla_device()
    model = Net([101, 102], 2.0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(x).mean().backward()
        xm.optimizer_step(optimizer)
"""


def test_the_same_numbers_are_uploaded_again_and_again():
    program = _HEAD + NUMBERS
    assert {item for item in found(program) if item[1] == "XLA604"} == marks(program)


CLIPPED = """\
import torch.distributed as dist
def train(model, loader, optimizer, args):
    for x in loader:
        optimizer.zero_grad()
        model(x.to(args.device)).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        xm.optimizer_step(optimizer, barrier=True)
    print(dist.get_world_size() if args.local_rank != -1 else 1)
def main(args):
    if args.use_tpu:
        args.device = xm.xla_device()
    else:
        args.device = torch.device("cuda", args.local_rank)
        dist.init_process_group(backend="{backend}")
    model = nn.Linear(3, 3).to(args.device)
    train(model, args.loader, torch.optim.SGD(model.parameters(), lr=0.1), args)
"""


@pytest.mark.parametrize(("backend", "told"), [("nccl", []), ("xla", [13])])
def test_a_group_of_gpus_makes_no_cores(backend, told):
    program = _HEAD + CLIPPED.format(backend=backend)
    assert [row for row, code in found(program) if code == "XLA303"] == told


SAVED = """\
from timm import utils
def _mp_fn(index, args):
    torch.manual_seed(1)
    model = nn.Linear(3, 3)
    model.to({device})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saver = None
    if xm.is_master_ordinal():
        saver = utils.CheckpointSaver(model=model, optimizer=optimizer, checkpoint_dir=".")
    for epoch in range(3):
        for x in pl.MpDeviceLoader(args.loader, xm.xla_device()):
            optimizer.zero_grad()
            model(x).sum().backward()
            xm.optimizer_step(optimizer)
        if saver is not None:
            saver.save_checkpoint(epoch, metric=1.0)
xmp.spawn(_mp_fn, args=(None,))
"""


@pytest.mark.parametrize(("device", "told"), [("xm.xla_device()", [23]), ('"cpu"', [])])
def test_the_saver_of_timm_writes_tensors_of_the_device(device, told):
    program = _HEAD + SAVED.format(device=device)
    assert [row for row, code in found(program) if code == "XLA721"] == told
