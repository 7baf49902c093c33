"""Values that come through objects, contexts and properties of the program's own."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """
import contextlib
import functools
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
"""

PROGRAMS = {
    "an object is started": """
class Run:
    def __init__(self, opts):
        self.opts, self.curve, self.shown = opts, [], []
    def __call__(self, index):
        device = torch_xla.device(index)  # !XLA416
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4).to(device)
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(self.opts.loader, device):
            loss = net(x).sum()
            loss.backward()
            xm.optimizer_step(sgd)
            sgd.zero_grad()
        self.curve.append(1.0)
def main(opts):
    run = Run(opts)
    xmp.spawn(run)
    print(run.curve)  # !XLA452
    print(run.shown)
if __name__ == "__main__":
    main(None)
""",
    "an object's method is started": """
class Run:
    def __init__(self, opts):
        self.opts, self.best = opts, 0
    def work(self, index):
        self.best = max(self.best, index + 1)
        xm.rendezvous("over")
def main(opts):
    run, other = Run(opts), Run(opts)
    xmp.spawn(run.work)
    print(run.best)  # !XLA452
    print(other.best)
if __name__ == "__main__":
    main(None)
""",
    "one or several processes": """
def work(index):
    xm.rendezvous("over")
def main(args):
    cores = 1 if args.single else 4
    xmp.spawn(work, nprocs=cores)  # !XLA404
    xmp.spawn(work, nprocs=1 if args.single else 8)  # !XLA404
    one = 1 if args.single else None
    xmp.spawn(work, nprocs=one)
if __name__ == "__main__":
    main(None)
""",
    "a context of evaluations": """
@contextlib.contextmanager
def frozen(net):
    net.eval()
    with torch.no_grad():
        yield net
    net.train()
def evaluate(net, held, device):
    total = 0
    with frozen(net) as judged:
        for batch in held:
            x, y = (part.to(device) for part in batch)  # !XLA603
            total += (judged(x).argmax(1) == y).sum().item()  # !XLA101
    return total
def main(rows):
    device = torch_xla.device()
    net = torch.nn.Linear(3, 3).to(device)
    evaluate(net, DataLoader(rows, 8), device)
main(1)
""",
    "a context that lets gradients be": """
@contextlib.contextmanager
def judging(net):
    net.eval()
    yield net
    net.train()
def evaluate(net, held, device):
    total = torch.zeros((), device=device)
    with judging(net) as judged:
        for x, y in held:  # !XLA320
            total += (judged(x).argmax(1) == y).sum()
    return total
def main(rows):
    device = torch_xla.device()
    net = torch.nn.Linear(3, 3).to(device)
    evaluate(net, pl.MpDeviceLoader(DataLoader(rows, 8), device), device)
main(1)
""",
    "an object as a context": """
class Step:
    def __init__(self, net):
        self.net = net
    def __enter__(self):
        return self.net
    def __exit__(self, *error):
        torch_xla.sync()
def main(rows):
    device = torch_xla.device()
    net = torch.nn.Linear(3, 3).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in rows:
        with Step(net) as inner:
            loss = inner(x.to(device)).sum()  # !XLA603
            print(loss.item())  # !XLA101
            loss.backward()
            sgd.step()
            sgd.zero_grad()
main(DataLoader(torch.load("rows.pt"), batch_size=8, drop_last=True))
""",
    "what is kept is made once": """
class Learner:
    def __init__(self, net):
        self.net = net.to(torch_xla.device())
        self.sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    @functools.cached_property
    def places(self):
        return ((torch.arange(8, dtype=torch.float32) + 0.5) / 8).to(torch_xla.device())
    @property
    def others(self):
        return ((torch.arange(8, dtype=torch.float32) + 0.5) / 8).to(torch_xla.device())  # !XLA604
    def step(self, x):
        loss = (self.net(x) * self.places + self.others).sum()
        loss.backward()
        self.sgd.step()
        self.sgd.zero_grad()
def main(loader):
    learner = Learner(torch.nn.Linear(8, 8))
    for x in pl.MpDeviceLoader(loader, torch_xla.device()):
        learner.step(x)
main(DataLoader(torch.load("rows.pt"), batch_size=8, drop_last=True))
""",
    "a loop over what a rare call gives": """
class Figures:
    def __init__(self):
        self.losses = []
    def compute(self):
        return {"loss": torch.stack(self.losses).mean().item()}
def main(loader):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    figures = Figures()
    seen = []
    for turn, x in enumerate(pl.MpDeviceLoader(loader, device), 1):
        loss = net(x).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        figures.losses = [loss.detach()]
        seen.append(loss.detach())
        if turn % 1000 == 0:
            torch_xla.sync()
            for name, number in figures.compute().items():
                print(name, number)
            print(np.mean(seen))  # !XLA105
main(DataLoader(torch.load("rows.pt"), batch_size=8, drop_last=True))
""",
    "a ring of as many rows": """
class Window:
    def __init__(self, device, size=64):
        self.recent = torch.zeros(size, device=device)
        self.pair = torch.zeros(2, device=device)
        self.seen = 0
    def keep(self, loss):
        self.recent[self.seen % len(self.recent)] = loss  # !XLA205
        self.pair[self.seen % len(self.pair)] = loss
        self.seen += 1
def main(loader):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    window = Window(device)
    for x in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        window.keep(loss.detach())
main(DataLoader(torch.load("rows.pt"), batch_size=8, drop_last=True))
""",
    "fields of a dataclass": """
from dataclasses import dataclass, field
@dataclass
class State:
    figures: dict = field(default_factory=dict)
    losses: list = field(default_factory=list)
    more: dict = field(default_factory=lambda: {})
    text: str = field(default="")
def run(index, rows):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=1)
    state = State()
    for x in pl.MpDeviceLoader(rows, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(sgd)
        sgd.zero_grad()
        state.figures.update(loss=loss, lr=0.1)
        state.losses.append(loss.detach())
        state.more["loss"] = loss
        xm.master_print(state.figures)  # !XLA103
        xm.master_print(state.losses[-1])  # !XLA103
        xm.master_print(state.more["loss"])  # !XLA103
        xm.master_print(state.text)
if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.load("rows.pt"),))
""",
    "two optimizers of one object": """
from dataclasses import dataclass
@dataclass
class State:
    net: torch.nn.Module
    dense: torch.optim.Optimizer
    table: torch.optim.Optimizer
def train_step(state, x):
    loss = state.net(x).mean()
    state.dense.zero_grad()
    state.table.zero_grad()
    loss.backward()
    xm.optimizer_step(state.dense)
    state.table.step()  # !XLA302
def run(index, rows):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3).to(device)
    first, last = torch.optim.Adam([net.weight]), torch.optim.SGD([net.bias], lr=1)
    state = State(net, torch.optim.Adam([net.weight]), torch.optim.SGD([net.bias], lr=1))
    for x in pl.MpDeviceLoader(rows, device):
        train_step(state, x)
if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.load("rows.pt"),))
""",
    "loaders side by side in a list": """
def run(index, parts):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=1)
    feeds = []
    for part in parts:
        loader = DataLoader(part, batch_size=8)  # !XLA203 XLA402
        feeds.append(pl.MpDeviceLoader(loader, device))
    for batches in zip(*feeds):
        loss = sum(net(x).mean() for x in batches)
        loss.backward()
        xm.optimizer_step(sgd)
        sgd.zero_grad()
if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.load("rows.pt"),))
""",
    "a copy on the host": """
import copy
def drive(brain, env):
    seen, over = env.reset(), False
    while not over:
        with torch.no_grad():
            move = brain(torch.as_tensor(seen, dtype=torch.float32)).argmax().item()
        seen, over = env.step(move)
def drive_there(brain, env, device):
    seen, over = env.reset(), False
    while not over:
        with torch.no_grad():
            x = torch.as_tensor(seen, dtype=torch.float32).to(device)
            move = brain(x).argmax().item()  # !XLA101
        seen, over = env.step(move)
def main(rows, env):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    brain = copy.deepcopy(net).cpu()
    drive(brain, env)
    drive(copy.deepcopy(net).to("cpu"), env)
    drive_there(net, env, device)
main(1, 2)
""",
    "places by the core's number": """
import torch_xla.runtime as xr
class Seat:
    @functools.cached_property
    def rank(self):
        return xr.global_ordinal()
def everyone(seat, figures, device):
    rows = torch.zeros(8, 4, device=device)
    rows[seat.rank] = figures  # !XLA421
    return xm.all_reduce(xm.REDUCE_SUM, rows)
def alone(seat, figures, device):
    rows = torch.zeros(8, 4, device=device)
    rows[seat.rank] = figures
    return rows.sum()
def run(index):
    device = torch_xla.device()
    seat = Seat()
    everyone(seat, torch.ones(4, device=device), device)
    alone(seat, torch.ones(4, device=device), device)
if __name__ == "__main__":
    torch_xla.launch(run)
""",
    "shares that come as parameters": """
import torch_xla.runtime as xr
from torch.utils.data import TensorDataset
def share(path, rank, world):
    raw = np.load(path)
    return raw["x"][rank::world], raw["y"][rank::world]
def train(columns, rows, device):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=1)
    own, same = torch.from_numpy(columns[0]), torch.from_numpy(rows[0])
    for (x,) in pl.MpDeviceLoader(DataLoader(TensorDataset(own), 8, drop_last=True), device):
        net(x).sum().backward()
        xm.optimizer_step(sgd)
        sgd.zero_grad()
    every = DataLoader(TensorDataset(same), 8, drop_last=True)  # !XLA402
    for (x,) in pl.MpDeviceLoader(every, device):
        net(x).sum().backward()
        xm.optimizer_step(sgd)
        sgd.zero_grad()
def run(index):
    columns = share("x.npz", xr.global_ordinal(), xr.world_size())
    train(columns, np.load("y.npy"), torch_xla.device())
if __name__ == "__main__":
    torch_xla.launch(run)
""",
    "made on a GPU": """
def smear(y, device="cuda"):  # !XLA706
    return y + torch.full((3,), 0.1, device=device)
def moved(y, device="cuda:0"):  # !XLA706
    return y.to(device)
def shown(y, device="cuda"):
    print(device)
    return y
def run(rows):
    device = torch_xla.device()
    net = torch.nn.Linear(3, 3).to(device)
    z = torch.tensor([1.0], device="cuda:0")  # !XLA706
    head = torch.nn.Linear(3, 3, device="cuda")  # !XLA706
    here = torch.zeros(3, device="cpu")
    there = torch.zeros(3, device="cuda" if torch.cuda.is_available() else device)
    return head(shown(moved(smear(net(rows)))) + smear(z, device) + here + there)
run(torch.load("rows.pt"))
""",
    "batches that a generator makes anew": """
def on_device(loader):
    for batch in there(loader):
        yield tuple(batch)
def there(loader):
    return pl.ParallelLoader(loader, [DEVICE]).per_device_loader(DEVICE)
def main(rows, tqdm):
    global DEVICE
    DEVICE = torch_xla.device()
    net = torch.nn.Linear(3, 3).to(DEVICE)
    loader = DataLoader(rows, 8, drop_last=True)
    bar = tqdm(on_device(loader))
    for batch in bar:
        net(batch).sum().backward()
    for batch in loader:
        net(batch).sum().backward()  # !XLA504
main(1, 2)
""",
    "settings of loaders that are handed on": """
import torch_xla.runtime as xr
from PIL import Image
from torch.utils.data import Dataset, DistributedSampler
class Pictures(Dataset):
    def __init__(self, names):
        self.names = names
    def __len__(self):
        return len(self.names)
    def __getitem__(self, at):
        return torch.from_numpy(np.asarray(Image.open(self.names[at]).convert("RGB")))
def batches(rows, size, device, **more):
    shares = dict(num_replicas=xr.world_size(), rank=xr.global_ordinal())
    sampler = DistributedSampler(rows, shuffle=more.pop("shuffle", True), **shares)
    return pl.MpDeviceLoader(DataLoader(rows, batch_size=size, sampler=sampler, **more), device)
def fit(net, sgd, train, epochs):
    for epoch in range(epochs):
        for x in train:
            sgd.zero_grad()
            loss = net(x.float()).mean()
            loss.backward()
            xm.optimizer_step(sgd)
def judge(net, held):
    net.eval()
    with torch.no_grad():
        return sum(net(x.float()).mean() for x in held)
def work(index, names):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(3, 3).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=1)
    first = batches(Pictures(names), 8, device, drop_last=True)  # !XLA606
    fit(net, sgd, first, 1)
    second = batches(Pictures(names), 8, device, num_workers=6)  # !XLA203
    fit(net, sgd, second, 9)
    third = batches(Pictures(names), 8, device, num_workers=6, drop_last=True)
    fit(net, sgd, third, 9)
    held = batches(Pictures(names), 8, device, num_workers=6, shuffle=False)
    judge(net, held)
if __name__ == "__main__":
    xmp.spawn(work, args=(["a.png"],))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_people_write_it(name):
    text = HEAD + PROGRAMS[name]
    wanted = marks(text)
    asked = {code for _, code in wanted} | {"XLA301", "XLA320"}
    assert {(row, code) for row, code in found(text) if code in asked} == wanted


def test_texts_are_padded_to_the_number_of_their_tokens():
    text = (
        HEAD
        + """
def pad(samples):
    texts, labels = zip(*samples)
    width = max(t.numel() for t in texts)
    block = torch.zeros(len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        block[row, : text.numel()] = text
    return block, torch.tensor(labels)
def main(rows):
    device = torch_xla.device()
    net = torch.nn.Embedding(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    loader = DataLoader(rows, batch_size=8, collate_fn=pad, drop_last=True, num_workers=2)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
main(torch.load("rows.pt"))
"""
    )
    assert "XLA209" in codes(text)
    assert "XLA209" not in codes(text.replace("max(t.numel() for t in texts)", "512"))


@pytest.mark.parametrize(
    ("given", "drawn"),
    [("", True), (", tp_degree=1", True), (", tp_degree=8", False), (", tp_degree=args.tp", False)],
)
def test_shards_of_one_model_draw_alike_on_purpose(given, drawn):
    text = (
        HEAD
        + f"""
from neuron_wrapper import build
def run(index, rows, args):
    device = torch_xla.device()
    net = build(args.path, device{given})
    sgd = torch.optim.SGD(net.parameters(), lr=1)
    for x in pl.MpDeviceLoader(rows, device):
        noise = torch.randn(8, 4, device=device)
        loss = net(x + noise).mean()
        loss.backward()
        xm.optimizer_step(sgd)
        sgd.zero_grad()
if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.load("rows.pt"), None))
"""
    )
    assert ("XLA434" in codes(text)) is drawn
