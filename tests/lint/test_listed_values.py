"""Settings, meters, copies and environments that were once listed as missed, told or not.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_in_files, marks_of, told, told_in_files

XM = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        return self.last(x)
"""
COLLATED = """
def train(net, data, collate):
    device = torch_xla.device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    loader = torch.utils.data.DataLoader(
        data, batch_size=8, collate_fn=collate, drop_last=True, num_workers=2
    )
    for batch in pl.MpDeviceLoader(loader, device):
        net(**batch).loss.backward()
        xm.optimizer_step(adam)
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA101: namedtuple output": XM
    + """
from collections import namedtuple
from typing import NamedTuple
from types import SimpleNamespace
from easydict import EasyDict
Out = namedtuple("Out", ["loss", "logits"])
class Out2(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor
class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x, y):
        z = self.last(x)
        return Out(nn.functional.cross_entropy(z, y), z)
class Net2(Net):
    def forward(self, x, y):
        z = self.last(x)
        return Out2(nn.functional.cross_entropy(z, y), z)
class Net3(Net):
    def forward(self, x, y):
        z = self.last(x)
        return SimpleNamespace(loss=nn.functional.cross_entropy(z, y), logits=z)
class Net4(Net):
    def forward(self, x, y):
        z = self.last(x)
        return EasyDict(loss=nn.functional.cross_entropy(z, y), logits=z)
class Net5(Net):
    def forward(self, x, y):
        z = self.last(x)
        out = EasyDict()
        out.loss = nn.functional.cross_entropy(z, y)
        return out
def train(batches, device):
    net, net2, net3 = Net().to(device), Net2().to(device), Net3().to(device)
    net4, net5 = Net4().to(device), Net5().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        out = net(x, y)
        out.loss.backward()
        xm.optimizer_step(adam)
        print(out.loss.item())  # !XLA101
        print(net2(x, y).loss.item())  # !XLA101
        print(net3(x, y).loss.item())  # !XLA101
        print(net4(x, y).loss.item())  # !XLA101
        print(net5(x, y).loss.item())  # !XLA101
""",
    "XLA101: own class derived from ModelOutput": XM
    + """
from dataclasses import dataclass
from transformers.utils import ModelOutput
@dataclass
class NetOutput(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x, y):
        z = self.last(x)
        return NetOutput(loss=nn.functional.cross_entropy(z, y), logits=z)
def train(batches, device):
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        out = net(x, y)
        out.loss.backward()
        xm.optimizer_step(adam)
        print(out.loss.item())  # !XLA101
        out["logits"].argmax(-1).cpu()  # !XLA101
        out[1].cpu()  # !XLA101
""",
    "XLA101: timedelta-like class not read stays silent": XM
    + """
from outputs import Meta
def train(net, batches, device):
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
        meta = Meta(step=step, size=x.shape[0])
        net(x).sum().backward()
        xm.optimizer_step(adam)
        print(meta.step.item(), meta.size)
""",
    "XLA209: pad with default None": """
"""
    + XM
    + """
from dataclasses import dataclass
from typing import Any, Optional
from transformers import AutoTokenizer, DataCollatorWithPadding
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")

class Collate:
    def __init__(self, tokenizer, pad_to_multiple_of: Optional[int] = None):
        self.tokenizer = tokenizer
        self.pad_to_multiple_of = pad_to_multiple_of
    def __call__(self, rows):
        return self.tokenizer.pad(  # !XLA209
            rows, return_tensors="pt", pad_to_multiple_of=self.pad_to_multiple_of
        )
@dataclass
class Collate2:
    tokenizer: Any
    padding: bool = True
    max_length: Optional[int] = None
    pad_to_multiple_of: Optional[int] = None
    def __call__(self, rows):
        return self.tokenizer.pad(  # !XLA209
            rows, padding=self.padding, max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt",
        )
@dataclass
class Collate3:
    tokenizer: Any
    pad_to_multiple_of: int = 8
    def __call__(self, rows):
        return self.tokenizer.pad(  # !XLA209
            rows, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt"
        )
def collate4(rows, tokenizer=tokenizer, multiple=None):
    return tokenizer.pad(rows, pad_to_multiple_of=multiple, return_tensors="pt")  # !XLA209
"""
    + COLLATED
    + """
train(net, data, Collate(tokenizer))
train(net, data, Collate2(tokenizer))
train(net, data, Collate3(tokenizer))
train(net, data, collate4)
""",
    "XLA209: healthy pad with defaults": """
"""
    + XM
    + """
from dataclasses import dataclass
from typing import Any, Optional
from transformers import AutoTokenizer, DataCollatorWithPadding
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")

class Collate:
    def __init__(self, tokenizer, pad_to_multiple_of: Optional[int] = None):
        self.tokenizer = tokenizer
        self.pad_to_multiple_of = pad_to_multiple_of
    def __call__(self, rows):
        return self.tokenizer.pad(
            rows, return_tensors="pt", pad_to_multiple_of=self.pad_to_multiple_of
        )
@dataclass
class Collate2:
    tokenizer: Any
    padding: str = "max_length"
    max_length: Optional[int] = 512
    pad_to_multiple_of: Optional[int] = None
    def __call__(self, rows):
        return self.tokenizer.pad(
            rows, padding=self.padding, max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt",
        )
@dataclass
class Collate3:
    tokenizer: Any
    pad_to_multiple_of: int = 128
    def __call__(self, rows):
        return self.tokenizer.pad(
            rows, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt"
        )
@dataclass
class Collate4:
    tokenizer: Any
    padding: bool = True
    def __call__(self, rows):
        return self.tokenizer.pad(rows, padding=self.padding, return_tensors="pt")
def collate5(rows, multiple=None):
    return tokenizer.pad(rows, pad_to_multiple_of=multiple, return_tensors="pt")
"""
    + COLLATED
    + """
train(net, data, Collate(tokenizer, pad_to_multiple_of=256))
train(net, data, Collate2(tokenizer))
train(net, data, Collate3(tokenizer))
train(net, data, Collate4(tokenizer, padding="max_length"))
import functools
train(net, data, functools.partial(collate5, multiple=128))
""",
    "XLA209: defaults elsewhere": """
"""
    + XM
    + """
from dataclasses import dataclass
from typing import Any, Optional
from transformers import AutoTokenizer, DataCollatorWithPadding
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")

def main(args):
    if args.pad_to_max_length:
        collate = None
    else:
        collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)  # !XLA209
    collate = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=False)
    collate = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=None)  # !XLA209
    multiple = 8 if args.fp16 else None
    collate = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)  # !XLA209
    def collate_fn(rows):
        multiple = args.multiple or None
        return tokenizer.pad(rows, pad_to_multiple_of=multiple, return_tensors="pt")
    def collate_fn2(rows):
        texts = [r["text"] for r in rows]
        return tokenizer(texts, padding=True, truncation=True, max_length=args.length)  # !XLA209
    def collate_fn3(rows):
        length = max(len(r["ids"]) for r in rows)  # !XLA209
        length = min(length, args.length)
        return torch.tensor([r["ids"] + [0] * (length - len(r["ids"])) for r in rows])
    train(net, data, collate_fn)
    train(net, data, collate_fn2)
    train(net, data, collate_fn3)
"""
    + COLLATED,
    "XLA209: argparse default": """
"""
    + XM
    + """
from dataclasses import dataclass
from typing import Any, Optional
from transformers import AutoTokenizer, DataCollatorWithPadding
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")

import argparse
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--multiple", type=int, default=None)
    parser.add_argument("--padding", default="longest")
    args = parser.parse_args()
    collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=args.multiple)  # !XLA209
    collate = DataCollatorForSeq2Seq(tokenizer, padding=args.padding)  # !XLA209
"""
    + COLLATED,
    "XLA209: settings class default": """
"""
    + XM
    + """
from dataclasses import dataclass
from typing import Any, Optional
from transformers import AutoTokenizer, DataCollatorWithPadding
from transformers import DataCollatorForLanguageModeling, DataCollatorForSeq2Seq
tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")

@dataclass
class Settings:
    pad_to_max_length: bool = False
    multiple: Optional[int] = None
def tokenize(rows, settings):
    padding = "max_length" if settings.pad_to_max_length else False
    return tokenizer(rows["text"], padding=padding, truncation=True)
def main(settings: Settings):
    collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=settings.multiple)  # !XLA209
"""
    + COLLATED,
    "XLA101: meters by setattr 2": XM
    + NET
    + """
class Meter:
    def __init__(self):
        self.total = 0.0
    def update(self, value):
        self.total += value.item()  # !XLA101
class Meters2:
    def __init__(self, names):
        for name in names:
            setattr(self, name, Meter())
class Meters3:
    def __init__(self, names):
        self.meters = {name: Meter() for name in names}
    def __getattr__(self, name):
        return self.meters[name]
class Meters4:
    def __init__(self, names):
        self.__dict__.update({name: Meter() for name in names})
class Meters5:
    def __init__(self, names):
        for name in names:
            self.__dict__[name] = Meter()
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    m2 = Meters2(["loss"])
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        m2.loss.update(loss)
""",
    "XLA101: meters by setattr 3": XM
    + NET
    + """
class Meter:
    def __init__(self):
        self.total = 0.0
    def update(self, value):
        self.total += value.item()  # !XLA101
class Meters2:
    def __init__(self, names):
        for name in names:
            setattr(self, name, Meter())
class Meters3:
    def __init__(self, names):
        self.meters = {name: Meter() for name in names}
    def __getattr__(self, name):
        return self.meters[name]
class Meters4:
    def __init__(self, names):
        self.__dict__.update({name: Meter() for name in names})
class Meters5:
    def __init__(self, names):
        for name in names:
            self.__dict__[name] = Meter()
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    m2 = Meters3(["loss"])
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        m2.loss.update(loss)
""",
    "XLA101: meters by setattr 4": XM
    + NET
    + """
class Meter:
    def __init__(self):
        self.total = 0.0
    def update(self, value):
        self.total += value.item()  # !XLA101
class Meters2:
    def __init__(self, names):
        for name in names:
            setattr(self, name, Meter())
class Meters3:
    def __init__(self, names):
        self.meters = {name: Meter() for name in names}
    def __getattr__(self, name):
        return self.meters[name]
class Meters4:
    def __init__(self, names):
        self.__dict__.update({name: Meter() for name in names})
class Meters5:
    def __init__(self, names):
        for name in names:
            self.__dict__[name] = Meter()
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    m2 = Meters4(["loss"])
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        m2.loss.update(loss)
""",
    "XLA101: meters by setattr 5": XM
    + NET
    + """
class Meter:
    def __init__(self):
        self.total = 0.0
    def update(self, value):
        self.total += value.item()  # !XLA101
class Meters2:
    def __init__(self, names):
        for name in names:
            setattr(self, name, Meter())
class Meters3:
    def __init__(self, names):
        self.meters = {name: Meter() for name in names}
    def __getattr__(self, name):
        return self.meters[name]
class Meters4:
    def __init__(self, names):
        self.__dict__.update({name: Meter() for name in names})
class Meters5:
    def __init__(self, names):
        for name in names:
            self.__dict__[name] = Meter()
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    m2 = Meters5(["loss"])
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        m2.loss.update(loss)
""",
    "XLA101: meters by setattr": XM
    + NET
    + """
class Meters:
    def __init__(self, names):
        for name in names:
            setattr(self, name, 0.0)
    def update(self, **values):
        for name, value in values.items():
            setattr(self, name, getattr(self, name) + value.item())  # !XLA101
class Meter:
    def __init__(self):
        self.total = 0.0
    def update(self, value):
        self.total += value.item()  # !XLA101
class Meters2:
    def __init__(self, names):
        for name in names:
            setattr(self, name, Meter())
class Meters3:
    def __init__(self, names):
        self.meters = {name: Meter() for name in names}
    def __getattr__(self, name):
        return self.meters[name]
class Meters4:
    def __init__(self, names):
        self.__dict__.update({name: Meter() for name in names})
class Meters5:
    def __init__(self, **kinds):
        for name, kind in kinds.items():
            self.__dict__[name] = kind
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    m1 = Meters(["loss"])
    m2 = Meters2(["loss"])
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        m1.update(loss=loss)
        m2.loss.update(loss)
""",
    "XLA320 XLA101 XLA301: evaluation over generators": XM
    + NET
    + """
from data import stream
def chunks(rows, n):
    for i in range(0, len(rows), n):
        yield rows[i:i + n]
def evaluate(rows):
    device = torch_xla.device()
    net = Net().to(device)
    net.eval()
    out = []
    with torch.no_grad():
        for x in chunks(rows, 8):  # !XLA301
            out.append(net(torch.stack(x).to(device)))
    return torch.cat(out)
def evaluate2(rows):
    device = torch_xla.device()
    net = Net().to(device)
    net.eval()
    total = 0
    for x in stream(rows):  # !XLA301
        with torch.no_grad():
            total += net(x.to(device)).sum()
    return total
def evaluate3(rows):
    device = torch_xla.device()
    net = Net().to(device).eval()
    total = 0
    with torch.inference_mode():
        for x in (r.to(device) for r in rows):  # !XLA301
            total += net(x).sum()
    return total
def evaluate4(source):
    device = torch_xla.device()
    net = Net().to(device).eval()
    total = 0
    it = iter(source)
    with torch.no_grad():
        while True:  # !XLA301
            x = next(it, None)
            if x is None:
                break
            total += net(x.to(device)).sum()
    return total
""",
    "XLA301: healthy generators": XM
    + NET
    + """
from data import stream
def chunks(rows, n):
    for i in range(0, len(rows), n):
        yield rows[i:i + n]
def evaluate(rows):
    device = torch_xla.device()
    net = Net().to(device).eval()
    with torch.no_grad():
        for x in chunks(rows, 8):
            net(torch.stack(x).to(device)).sum()
            torch_xla.sync()
def evaluate2(rows):
    device = torch_xla.device()
    net = Net().to(device).eval()
    out = []
    for x in stream(rows):
        out.append(net(x.to(device)).cpu())
    return out
def evaluate3(nets, x):
    device = torch_xla.device()
    x = x.to(device)
    return [net.to(device)(x) for net in nets]
def evaluate4(nets, x):
    device = torch_xla.device()
    x = x.to(device)
    for net in nets:
        net = net.to(device)
        net(x)
""",
    "XLA301: healthy device loader elsewhere": XM
    + NET
    + """
def feed(loader, device):
    for x in loader:
        yield x.to(device)
def evaluate(rows):
    device = torch_xla.device()
    net = Net().to(device).eval()
    with torch.no_grad():
        for x in feed(pl.MpDeviceLoader(rows, device), device):
            net(x).sum()
""",
    "XLA101: healthy meters by setattr": XM
    + NET
    + """
class Meter:
    def __init__(self):
        self.total = 0.0
    def update(self, value):
        self.total += value
class Meters:
    def __init__(self, names):
        for name in names:
            setattr(self, name, Meter())
class Times:
    def __init__(self, **given):
        self.__dict__.update(given)
    def add(self, value):
        self.last.update(value.item())
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    meters = Meters(["loss"])
    settings = Times(rate=0.1, every=10, device=device)
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        meters.loss.update(loss.detach())
        if settings.every.item():
            settings.rate.item()
""",
    "XLA101: env.step(device tensor)": """
"""
    + XM
    + """
import gymnasium as gym
import numpy as np
"""
    + NET
    + """
def rollout(env):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    state = env.reset()
    for step in range(1000):
        probs = net(state)
        action = torch.distributions.Categorical(logits=probs).sample()
        state, reward, done, _ = env.step(action)  # !XLA101
        loss = -probs.mean()
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
def rollout2():
    env = gym.make("CartPole-v1")
    device = torch_xla.device()
    net = Net().to(device)
    obs, _ = env.reset()
    while True:
        with torch.no_grad():
            action = net(torch.from_numpy(obs).to(device)).argmax()
        obs, reward, done, _, _ = env.step(action)  # !XLA101
        torch_xla.sync()
        if done:
            break
def rollout3():
    env = gym.make("CartPole-v1")
    device = torch_xla.device()
    net = Net().to(device)
    obs, _ = env.reset()
    while True:
        with torch.no_grad():
            action = net(torch.from_numpy(obs).to(device)).argmax().cpu()  # !XLA101
        obs, reward, done, _, _ = env.step(action)
        torch_xla.sync()
""",
    "XLA101 XLA113 XLA425: env.step": XM
    + NET
    + """
import gymnasium as gym
class Rollout:
    def __init__(self):
        self.device = torch_xla.device()
        self.net = Net().to(self.device)
        self.env = gym.make("CartPole-v1")
    def act(self, state):
        with torch.no_grad():
            return self.net(torch.as_tensor(state, device=self.device)).argmax()
    def play(self):
        state, _ = self.env.reset()
        done = False
        while not done:
            action = self.act(state)
            state, reward, done, _, _ = self.env.step(action)  # !XLA101
    def play2(self):
        state, _ = self.env.reset()
        for _ in range(100):
            action = self.act(state).cpu().numpy()  # !XLA101
            state, reward, done, _, _ = self.env.step(action)
    def play3(self):
        state, _ = self.env.reset()
        while True:
            action = int(self.act(state))
            state, reward, done, _, _ = self.env.step(action)
            if done:
                break
def vectors(net):
    envs = gym.vector.make("CartPole-v1", 8)
    device = torch_xla.device()
    net = net.to(device)
    states = envs.reset()
    for _ in range(128):
        with torch.no_grad():
            actions = net(torch.from_numpy(states).to(device)).argmax(-1)
        states, rewards, dones, infos = envs.step(actions)  # !XLA101
def vectors2(envs, net):
    device = torch_xla.device()
    net = net.to(device)
    states = envs.reset()
    for _ in range(128):
        with torch.no_grad():
            actions = net(torch.from_numpy(states).to(device)).argmax(-1)
        states, rewards, dones, infos = envs.step(actions.cpu().numpy())  # !XLA101
""",
    "XLA101: healthy device env": XM
    + NET
    + """
class Env:
    def __init__(self, device):
        self.state = torch.zeros(8, device=device)
    def reset(self):
        return self.state
    def step(self, action):
        self.state = self.state + action
        return self.state, self.state.sum(), False, {}
def rollout():
    device = torch_xla.device()
    env = Env(device)
    net = Net().to(device)
    state = env.reset()
    for _ in range(100):
        with torch.no_grad():
            action = net(state)
        state, reward, done, _ = env.step(action)
        torch_xla.sync()
""",
    "XLA203: helper of CUDA only": XM
    + NET
    + """
from torch.utils.data import DataLoader
def cuda_loader(data):
    return DataLoader(data, batch_size=8, shuffle=True)
def train_cuda(data):
    net = Net().cuda()
    adam = torch.optim.Adam(net.parameters())
    for x, y in cuda_loader(data):
        net(x.cuda()).sum().backward()
        adam.step()
def train_xla(data):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    for x, y in pl.MpDeviceLoader(loader, device):
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA203: helper of CUDA only by setting": XM
    + NET
    + """
from torch.utils.data import DataLoader
def make(data):
    return DataLoader(data, batch_size=8, shuffle=True)
def train(data, args):
    if args.tpu:
        device = torch_xla.device()
        loader = pl.MpDeviceLoader(DataLoader(data, batch_size=8, drop_last=True), device)
    else:
        device = torch.device("cuda")
        loader = make(data)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in loader:
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA713 XLA704: scaler made for XLA not used": XM
    + NET
    + """
from torch_xla.amp import autocast, GradScaler
from torch_xla.amp import syncfree
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    scaler = GradScaler()
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA713 XLA704: scaler torch made for XLA not used": XM
    + NET
    + """
def main(batches, fp16):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler("xla")
    other = torch.cuda.amp.GradScaler()
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA301 XLA603 XLA302: notebook for CUDA 2": """
import torch
import torch.nn as nn
try:
    import torch_xla.core.xla_model as xm
    has_tpu = True
except ImportError:
    has_tpu = False
def get_device():
    return "cuda:0"
device = get_device()
net = nn.Linear(8, 4).to(device)
adam = torch.optim.Adam(net.parameters())
loader = torch.utils.data.DataLoader([1], batch_size=8)
for x, y in loader:
    x = x.to(device)
    net(x).sum().backward()
    adam.step()
""",
    "XLA301 XLA603 XLA302: notebook for CUDA 3": """
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
DEVICE = "cuda"
# device = xm.xla_device()
def train(net, loader, adam, device=DEVICE):
    for x, y in loader:
        x = x.to(device)
        net(x).sum().backward()
        adam.step()
net = nn.Linear(8, 4)
net.cuda()
adam = torch.optim.Adam(net.parameters())
loader = torch.utils.data.DataLoader([1], batch_size=8)
train(net, loader, adam)
""",
    "XLA101 XLA603: weights fetched through zipped pairs": XM
    + NET
    + """
import copy
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    host = Net()
    best = copy.deepcopy(net)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        for a, b in zip(host.parameters(), net.parameters()):
            a.data.copy_(b.data.cpu())  # !XLA101
        for a, b in zip(host.parameters(), net.parameters()):
            a.data.copy_(b.data)  # !XLA101
        for a, b in zip(host.parameters(), net.parameters()):
            b.data = a.data.to(device)
        for (n, a), (m, b) in zip(host.state_dict().items(), net.state_dict().items()):
            a.copy_(b)  # !XLA101
        for a, b in zip(host.parameters(), net.parameters()):
            a.grad = b.grad.to("cpu")  # !XLA101
        host.load_state_dict(net.state_dict())  # !XLA101
        cpu = {k: v.cpu() for k, v in net.state_dict().items()}  # !XLA101
        for a, b in zip(best.parameters(), net.parameters()):
            a.data.mul_(0.9).add_(b.data)
        best.load_state_dict(net.state_dict())
""",
    "XLA101 XLA113: healthy copies of weights": XM
    + NET
    + """
import copy
class Average(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.held = copy.deepcopy(net)
    def update(self, net):
        for a, b in zip(self.held.parameters(), net.parameters()):
            a.data.copy_(b.data)
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    late = Net()
    late.to(device)
    average = Average(net)
    wrapped = Net().to(device)
    host = Net()
    adam = torch.optim.Adam(net.parameters())
    for epoch in range(3):
        for x, y in pl.MpDeviceLoader(batches, device):
            adam.zero_grad()
            loss = net(x).sum()
            loss.backward()
            xm.optimizer_step(adam)
            average.update(net)
            late.load_state_dict(net.state_dict())
            wrapped.load_state_dict(late.state_dict())
            for (m, a), (n, b) in zip(late.named_parameters(), net.named_parameters()):
                a.data.copy_(b.data)
            for key, value in net.state_dict().items():
                print(key)
        host.load_state_dict(net.state_dict())
""",
    "XLA101 XLA113: weights to the host in other ways": XM
    + NET
    + """
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    host = Net()
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(adam)
        for p, q in zip(net.parameters(), host.parameters()):
            q.data.copy_(p)  # !XLA101
        for q, p in zip(host.state_dict().values(), net.state_dict().values()):
            q.copy_(p)  # !XLA101
        kept = {name: value.cpu() for name, value in net.state_dict().items()}  # !XLA101
        host.load_state_dict(net.state_dict(), strict=False)  # !XLA101
""",
    "XLA604: places counted on the host 0": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.tensor([i for i in range(n) for j in range(i)])
        return z[:, rows]  # !XLA604
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 1": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows, columns = torch.tril_indices(n, n)
        return z[:, rows, columns]
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 2": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.tril_indices(n, n)
        return z[:, rows[0], rows[1]]
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 3": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.as_tensor([2 * i for i in range(n)])
        return z[rows]  # !XLA604
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 4": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.tensor([i for i in range(n)], device=x.device)  # !XLA604
        return z[:, rows]
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 5": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.tensor([i for i in range(n)]).to(x.device)  # !XLA604
        return z[:, rows]
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 6": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.tensor([i for i in self.chosen])
        return z[:, rows]
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA604: places counted on the host 7": XM
    + """
class Pairs(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        z = self.last(x)
        n = z.shape[1]
        rows = torch.triu_indices(n, n)[0]
        return z[:, rows]
def main(batches):
    device = torch_xla.device()
    net = Pairs([1, 2]).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA603 XLA604: a buffer by places 0": XM
    + NET
    + """
import random
import numpy as np
import gymnasium as gym
class Agent:
    def __init__(self, env, replay):
        self.device = torch_xla.device()
        self.net = Net().to(self.device)
        self.env = env
        self.replay = replay
        self.memory = []
        self.states = np.zeros((100, 8), dtype=np.float32)
        self.kept = torch.zeros(100, 8)
        self.adam = torch.optim.Adam(self.net.parameters())
    def run(self, steps):
        state, _ = self.env.reset()
        for step in range(steps):
            action = self.env.action_space.sample()
            after, reward, done, _, _ = self.env.step(action)
            self.memory.append((state, action, reward, after, done))
            self.states[step % 100] = state
            state = after
            self.learn()
    def learn(self):
        ids = np.random.choice(len(self.memory), 32)
        x = torch.tensor(np.stack([self.memory[i][0] for i in ids]), device=self.device)  # !XLA603
        loss = self.net(x).mean()
        self.adam.zero_grad()
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
""",
    "XLA603 XLA604: a buffer by places 2": XM
    + NET
    + """
import random
import numpy as np
import gymnasium as gym
class Agent:
    def __init__(self, env, replay):
        self.device = torch_xla.device()
        self.net = Net().to(self.device)
        self.env = env
        self.replay = replay
        self.memory = []
        self.states = np.zeros((100, 8), dtype=np.float32)
        self.kept = torch.zeros(100, 8)
        self.adam = torch.optim.Adam(self.net.parameters())
    def run(self, steps):
        state, _ = self.env.reset()
        for step in range(steps):
            action = self.env.action_space.sample()
            after, reward, done, _, _ = self.env.step(action)
            self.memory.append((state, action, reward, after, done))
            self.states[step % 100] = state
            state = after
            self.learn()
    def learn(self):
        ids = np.random.choice(100, 32, replace=False)
        x = torch.from_numpy(self.states[ids]).to(self.device)  # !XLA603
        loss = self.net(x).mean()
        self.adam.zero_grad()
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
""",
    "XLA603 XLA604: a buffer by places 3": XM
    + NET
    + """
import random
import numpy as np
import gymnasium as gym
class Agent:
    def __init__(self, env, replay):
        self.device = torch_xla.device()
        self.net = Net().to(self.device)
        self.env = env
        self.replay = replay
        self.memory = []
        self.states = np.zeros((100, 8), dtype=np.float32)
        self.kept = torch.zeros(100, 8)
        self.adam = torch.optim.Adam(self.net.parameters())
    def run(self, steps):
        state, _ = self.env.reset()
        for step in range(steps):
            action = self.env.action_space.sample()
            after, reward, done, _, _ = self.env.step(action)
            self.memory.append((state, action, reward, after, done))
            self.states[step % 100] = state
            state = after
            self.learn()
    def learn(self):
        ids = np.random.choice(100, 32, replace=False)
        x = torch.as_tensor(self.states[ids], device=self.device)  # !XLA603
        loss = self.net(x).mean()
        self.adam.zero_grad()
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
""",
    "XLA603 XLA604: a buffer by places 5": XM
    + NET
    + """
import random
import numpy as np
import gymnasium as gym
class Agent:
    def __init__(self, env, replay):
        self.device = torch_xla.device()
        self.net = Net().to(self.device)
        self.env = env
        self.replay = replay
        self.memory = []
        self.states = np.zeros((100, 8), dtype=np.float32)
        self.kept = torch.zeros(100, 8)
        self.adam = torch.optim.Adam(self.net.parameters())
    def run(self, steps):
        state, _ = self.env.reset()
        for step in range(steps):
            action = self.env.action_space.sample()
            after, reward, done, _, _ = self.env.step(action)
            self.memory.append((state, action, reward, after, done))
            self.states[step % 100] = state
            state = after
            self.learn()
    def learn(self):
        ids = torch.randint(0, 100, (32,))
        x = self.kept[ids].to(self.device)  # !XLA603
        loss = self.net(x).mean()
        self.adam.zero_grad()
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
""",
    "XLA603 XLA604: a buffer by places 7": XM
    + NET
    + """
import random
import numpy as np
import gymnasium as gym
class Agent:
    def __init__(self, env, replay):
        self.device = torch_xla.device()
        self.net = Net().to(self.device)
        self.env = env
        self.replay = replay
        self.memory = []
        self.states = np.zeros((100, 8), dtype=np.float32)
        self.kept = torch.zeros(100, 8)
        self.adam = torch.optim.Adam(self.net.parameters())
    def run(self, steps):
        state, _ = self.env.reset()
        for step in range(steps):
            action = self.env.action_space.sample()
            after, reward, done, _, _ = self.env.step(action)
            self.memory.append((state, action, reward, after, done))
            self.states[step % 100] = state
            state = after
            self.learn()
    def learn(self):
        states, actions = self.replay.sample(32)
        x = torch.tensor(states, device=self.device)  # !XLA603
        loss = self.net(x).mean()
        self.adam.zero_grad()
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
""",
    "XLA206: what a Trainer's own loop piles up": """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
from transformers.trainer_pt_utils import nested_concat
class Own(Trainer):
    def evaluation_loop(self, dataloader, description, prediction_loss_only=None, **named):
        kept, seen, lost = None, None, None
        model = self._wrap_model(self.model, training=False)
        model.eval()
        for step, inputs in enumerate(dataloader):
            loss, logits, labels = self.prediction_step(model, inputs, prediction_loss_only)
            xm.mark_step()
            lost = loss if lost is None else torch.cat((lost, loss.repeat(8)), dim=0)  # !XLA206
            logits = self._pad_across_processes(logits)
            kept = logits if kept is None else nested_concat(kept, logits)  # !XLA206
            labels = self.accelerator.pad_across_processes(labels, dim=1)
            labels = self._nested_gather(labels)
            seen = labels if seen is None else nested_concat(seen, labels)  # through the host
        return kept, seen, lost
""",
    "XLA206: healthy loop of a Trainer": """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
from transformers.trainer_pt_utils import nested_concat, nested_numpify
class Own(Trainer):
    def evaluation_loop(self, dataloader, description, prediction_loss_only=None, **named):
        kept = None
        model = self._wrap_model(self.model, training=False)
        for step, inputs in enumerate(dataloader):
            loss, logits, labels = self.prediction_step(model, inputs, prediction_loss_only)
            logits = nested_numpify(self._pad_across_processes(logits))
            kept = logits if kept is None else nested_concat(kept, logits)
        return kept
""",
}

#: File by file, as they stand in a project.
PROJECTS = {
    "XLA704: scaler by setting of another file": {
        "cfg.py": """\
USE_AMP = True
class CFG:
    amp = True
    device = 'xla'
""",
        "train.py": XM
        + NET
        + """
from cfg import USE_AMP, CFG
from torch.cuda.amp import GradScaler, autocast
def main(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    scaler = GradScaler(enabled=USE_AMP)  # !XLA704
    other = GradScaler() if CFG.amp else None  # !XLA704
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = net(x).sum()
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        other.update()
""",
    },
    "XLA704: healthy settings of another file": {
        "cfg.py": """\
USE_AMP = False
class CFG:
    amp = False
    other = True
CFG.other = False
""",
        "train.py": XM
        + """
from cfg import USE_AMP, CFG
from torch.cuda.amp import GradScaler
def main(net, batches, args):
    device = torch_xla.device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    scaler = GradScaler(enabled=USE_AMP)
    scaler = GradScaler(enabled=CFG.amp)
    scaler = GradScaler(enabled=CFG.other)
    scaler = GradScaler(enabled=args.fp16)
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        scaler.scale(net(x).sum()).backward()
        scaler.step(adam)
        scaler.update()
""",
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_people_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


@pytest.mark.parametrize("name", PROJECTS)
def test_over_the_files_of_a_project(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = PROJECTS[name]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)
