"""Environments, tried layers, drawn models and lengths of the device, in several spellings.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_of, told

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files

STEP = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
ACTOR = """\
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.distributions import Categorical
class Net(nn.Module):
    def __init__(self, shape, actions):
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 16, 3)
        with torch.no_grad():
            wide = self.look(torch.zeros(1, *shape)).shape[1]
        self.act = nn.Linear(wide, actions)
        self.worth = nn.Linear(wide, 1)
    def look(self, x):
        x = self.conv(x)
        return x.flatten(1)
    def forward(self, x):
        x = self.look(x)
        return self.act(x), self.worth(x)
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA101 XLA109: a constructor tries the layers on the host": f"""\
{ACTOR}
def learn(env, shape, actions, batches):
    device = torch_xla.device()
    net = Net(shape, actions).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, a, gain in pl.MpDeviceLoader(batches, device):
        logits, worth = net(x)
        dist = Categorical(logits=logits)  # !XLA109
        loss = -(dist.log_prob(a) * gain).mean() + worth.pow(2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        print(loss.item())  # !XLA101
""",
    "XLA109: the checks are off for all": f"""\
{ACTOR}
torch.distributions.Distribution.set_default_validate_args(False)
def learn(net, adam, batches):
    device = torch_xla.device()
    net.to(device)
    for x, a in pl.MpDeviceLoader(batches, device):
        loss = -Categorical(logits=net(x)).log_prob(a).mean()
        loss.backward()
        adam.step()
""",
    "XLA109: a class that is made of a distribution": """\
import torch
import torch.distributions as D
import torch_xla
import torch_xla.distributed.parallel_loader as pl
class Choice(D.Categorical):
    def mode(self):
        return self.probs.argmax(-1)
def learn(net, adam, batches):
    device = torch_xla.device()
    net.to(device)
    for x, a in pl.MpDeviceLoader(batches, device):
        dist = Choice(logits=net(x))  # !XLA109
        (-dist.log_prob(a).mean()).backward()
        adam.step()
        quiet = D.StudentT(x, x, x, validate_args=False)
        loud = D.StudentT(x, x, x)  # !XLA109
""",
    "XLA101 XLA102 XLA103: texts in several pieces": f"""\
{STEP}
def report(index, loss, step):
    print(
        f"core {{index}} step {{step}} "
        f"loss {{loss.item():.3f}}"  # !XLA101
    )
    print(
        "step {{}} "  # !XLA103
        "loss {{}}".format(step, loss)
    )
def _mp_fn(index, net, adam, batches, crit):
    device = torch_xla.device()
    net.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
        loss = crit(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        report(index, loss, step)
        print("step ", step, f"of {{len(batches)}}: " f"{{loss}}")  # !XLA103
        xm.add_step_closure(print, args=("at " f"step {{step}}",))
        text = ("a" f"{{step}}"
                f"{{float(x.sum())}}")  # !XLA102
""",
    "XLA603: a loader of the program's own": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils import data
from torch.utils.data import DataLoader
class Speech(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.collate_fn = list
class Pictures(data.DataLoader):
    pass
class Ready(DataLoader):
    def __iter__(self):
        for x, y in super().__iter__():
            yield x.to(xm.xla_device()), y.to(xm.xla_device())
def train(net, adam, crit, things):
    device = xm.xla_device()
    net.to(device)
    for one in (0, 1):
        for x, y in Speech(things, batch_size=8):
            x, y = x.to(device), y.to(device)  # !XLA603
            crit(net(x), y).backward()
            xm.optimizer_step(adam, barrier=True)
    pictures = Pictures(things, batch_size=8)
    for x, y in pictures:
        x, y = x.to(device), y.to(device)  # !XLA603
        crit(net(x), y).backward()
        xm.optimizer_step(adam, barrier=True)
    for x, y in Ready(things, batch_size=8):
        crit(net(x), y).backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "XLA108: cut at a length of the device": f"""\
{STEP}
def cut(waves, lengths, width):
    parts = []
    for wave, index in zip(waves, range(8)):
        parts.append(wave[: lengths[index]])  # !XLA108
        parts.append(wave[: width[index]])
    return parts
def train(net, adam, crit, batches):
    device = torch_xla.device()
    net.to(device)
    for x, y, lengths in pl.MpDeviceLoader(batches, device):
        short = cut(net(x), lengths, [4] * 8)
        crit(short, y).backward()
        adam.step()
""",
    "XLA426: a part that a model makes in a function of its own": """\
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
class Block(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.lin = nn.Linear(wide, wide)
    def forward(self, x):
        return self.lin(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        def block(wide):
            return nn.Sequential(Block(wide), nn.Linear(wide, wide))
        self.first, self.second = block(8), block(8)
    def forward(self, x):
        return self.second(self.first(x))
def _mp_fn(index, batches, crit):
    device = xm.xla_device()
    net = Net().to(device)  # !XLA426
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        crit(net(x), y).backward()
        xm.optimizer_step(adam)
""",
    "XLA604: numbers that are written in the step": f"""\
{STEP}
MEAN = [0.48, 0.45, 0.40]
def train(net, adam, crit, batches, weights):
    device = torch_xla.device()
    net.to(device)
    known = torch.tensor([0.26, 0.26, 0.27], device=device)
    for x, y in pl.MpDeviceLoader(batches, device):
        mean = torch.tensor([0.48, 0.45, 0.40], device=device).view(1, 3, 1, 1)  # !XLA604
        deep = torch.as_tensor([[1, 2], [3, 4]], device=x.device)  # !XLA604
        host = torch.tensor([0.48, 0.45, 0.40])
        other = torch.tensor([weights, 1.0], device=device)
        crit(net((x - mean) / known), y).backward()
        adam.step()
def judge(net, batches):
    device = torch_xla.device()
    with torch.no_grad():
        for x in pl.MpDeviceLoader(batches, device):
            start = torch.tensor([0], device=device)
            net(x, start)
""",
    "XLA301: what an environment feeds": """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
class Agent:
    def __init__(self, net, env):
        self.device = xm.xla_device()
        self.net, self.env = net.to(self.device), env
        self.adam = torch.optim.Adam(net.parameters())
    def fit(self, turns):
        state = self.env.reset()
        for _ in range(turns):
            state, gain, done, _ = self.env.step(1)
            x = torch.as_tensor(state, device=self.device)
            loss = self.net(x).sum() * gain
            self.adam.zero_grad()
            loss.backward()
            xm.optimizer_step(self.adam)  # !XLA301
    def play(self, state, done=False):
        while not done:
            loss = self.net(torch.as_tensor(state, device=self.device)).sum()
            state, gain, done, _ = self.env.step(loss)
            loss.backward()
            xm.optimizer_step(self.adam)  # !XLA301
    def ended(self, turns):
        for _ in range(turns):
            state, gain, done, _ = self.env.step(1)
            self.net(torch.as_tensor(state, device=self.device)).sum().backward()
            xm.optimizer_step(self.adam, barrier=True)
    def loaded(self, batches):
        for x in pl.MpDeviceLoader(batches, self.device):
            self.net(x).sum().backward()
            xm.optimizer_step(self.adam)
            self.env.step(1)
""",
    "XLA101 XLA102: each step of an environment waits": f"""\
{ACTOR}
def play(env, shape, actions, turns):
    device = torch_xla.device()
    net = Net(shape, actions).to(device)
    state = env.reset()
    for _ in range(turns):
        logits, _ = net(torch.as_tensor(state, device=device))
        action = logits.argmax(-1)
        state, gain, done, _ = env.step(action.cpu().numpy())  # !XLA101
        if done:
            state = env.reset()
""",
    "XLA101 XLA102: an agent chooses in a method": """\
import torch
import torch_xla
class Agent:
    def __init__(self, net):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
    def choose(self, state):
        state = torch.FloatTensor(state).to(self.device)
        return torch.argmax(self.net(state)).item()  # !XLA101
    def run(self, env):
        state, done = env.reset(), False
        while not done:
            action = self.choose(state)
            state, gain, done, _ = env.step(action)
""",
    "XLA101: an environment of the CPU's policy": """\
import torch
import torch_xla
def play(env, net, twin, turns):
    device = torch_xla.device()
    net.to(device)
    state = env.reset()
    for _ in range(turns):
        with torch.no_grad():
            action = twin(torch.zeros(3)).argmax(-1).item()
        state, gain, done, _ = env.step(action)
""",
    "XLA705: an array of flags as float64": """\
import numpy as np
import torch
import torch_xla
def play(envs, net, turns):
    device = torch_xla.device()
    net.to(device)
    ends, fine = [], []
    x = torch.zeros(3, device=device)
    for _ in range(turns):
        a = net(x).argmax(-1)
        x, gain, done, _ = envs.step(a)
        ends.append(torch.from_numpy(done.astype(float)).to(device))  # !XLA705
        ends.append(torch.as_tensor(np.asarray(done, dtype=np.float64)).to(device))  # !XLA705
        fine.append(torch.from_numpy(done.astype(np.float32)).to(device))
        fine.append(torch.from_numpy(done.astype(float)).float().to(device))
""",
    "XLA315: a sum without history": f"""\
{STEP}
def fit(net, optimizer, batches, criterion):
    device = torch_xla.device()
    net.to(device)
    total = torch.zeros((), device=device)
    kept = torch.zeros((), device=device)
    for x, y in pl.MpDeviceLoader(batches, device):
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            total += loss * len(x)
        with torch.inference_mode():
            total += loss
        kept += loss  # !XLA315
""",
    "XLA101: a default that every caller replaces": f"""\
{STEP}
def unpack(batch, longest=None, short=None):
    x, lengths = batch
    if longest is None:
        longest = lengths.max().item()
    if short is None:
        short = lengths.min().item()  # !XLA101
    return x, longest, short
class Taker:
    def take(self, batch, longest=None, short=None):
        return unpack(batch, longest, short)
def fit(net, adam, batches, crit, most):
    device = torch_xla.device()
    net.to(device)
    taker = Taker()
    for batch in pl.MpDeviceLoader(batches, device):
        x, longest, _ = taker.take(batch, longest=most)
        crit(net(x), longest).backward()
        adam.step()
""",
    "XLA434: drawn into a new tensor": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
def _mp_fn(index, make, batches, crit):
    device = xm.xla_device()
    torch.manual_seed(0)
    gen = make().to(device)
    adam = torch.optim.Adam(gen.parameters())
    for real in pl.MpDeviceLoader(batches, device):
        z = torch.empty((16, 8), device=device).normal_(0, 1)  # !XLA434
        y = torch.zeros(16, dtype=torch.int64, device=device).random_(10)  # !XLA434
        crit(gen(z, y), real).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=(dict, [], None))
""",
    "XLA405: a meeting behind a lock": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
def fetch():
    if not xm.is_master_ordinal():
        xm.rendezvous("download")
    data = open("data").read()
    if xm.is_master_ordinal():
        xm.rendezvous("download")
    return data
def read():
    return open("data").read()
SERIAL = xmp.MpSerialExecutor()
def _mp_fn(index):
    one = SERIAL.run(fetch)  # !XLA405
    two = SERIAL.run(lambda: fetch())  # !XLA405
    three = SERIAL.run(read)
    return one, two, three
if __name__ == "__main__":
    xmp.spawn(_mp_fn)
""",
    "XLA426: an ensemble of models, and weights that the master may load": f"""\
{STEP}
import os
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        return self.lin(x)
class Both(nn.Module):
    def __init__(self, *models):
        super().__init__()
        self.models = nn.ModuleList(models)
    def forward(self, x):
        return sum(model(x) for model in self.models)
def _mp_fn(index, batches, crit):
    device = xm.xla_device()
    nets = [Net().to(device) for _ in range(2)]  # !XLA426
    both = Both(*nets)
    adam = torch.optim.Adam(both.parameters())
    if xm.is_master_ordinal() and os.path.isfile("net.pt"):
        both.load_state_dict(torch.load("net.pt"))  # !XLA426
    for x, y in pl.MpDeviceLoader(batches, device):
        crit(both(x), y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=([], None))
""",
    "XLA426: sent by a function of the program": f"""\
{STEP}
from itertools import chain
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        return self.lin(x)
def add_up(tensors, scale):
    for tensor in tensors:
        tensor.mul_(scale)
    xm.all_reduce(xm.REDUCE_SUM, tensors)
def agree(model, scale):
    everything = list(chain(model.parameters(), model.buffers()))
    add_up(everything, scale)
def _mp_fn(index, batches, crit):
    device = xm.xla_device()
    net = Net().to(device)
    agree(net, torch.tensor(float(index == 0), device=device))
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        crit(net(x), y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=([], None))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_others_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


LOOPS = """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
def epoch(net, adam, batches, device, crit):
    for x, y in pl.MpDeviceLoader(batches, device):
        crit(net(x), y).backward()
        xm.optimizer_step(adam)
"""
MAIN = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from loops import epoch
from nets import Net
def _mp_fn(index, batches, crit):
    device = xm.xla_device()
    net = Net().to(device)  # !XLA426 !XLA306
    adam = torch.optim.Adam(net.parameters())
    for _ in range(3):
        epoch(net, adam, batches, device, crit)
if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=([], None))
"""
#: The file of models in programs of three files: nothing in it says what it runs on.
NETS = {
    "XLA306 XLA426: tied in another file": """\
import torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 100, bias=False)
        self.head.weight = self.word.weight
    def forward(self, x):
        return self.head(self.word(x))
""",
    "XLA101: the constructor tries the layers on the host": """\
import torch
import torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        wide = self.look(torch.zeros(1, 3, 32, 32)).shape[1]
        self.act = nn.Linear(wide, 10)
    def look(self, x):
        x = self.conv(x)
        return x.flatten(1)
    def forward(self, x):
        x = self.act(self.look(x))
        self.last = x.mean().item()  # !XLA101
        return x
""",
    "XLA104: blocks in a list": """\
import torch.nn as nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        y = self.lin(x)
        if y.abs().max() > 100:  # !XLA104
            y = y.clamp(-100, 100)
        return y
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(8)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
""",
    "XLA104: blocks in a row, by their names, and put in later": """\
import torch.nn as nn
class Block(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x  # !XLA104
class Head(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x  # !XLA104
class Late(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x  # !XLA104
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(4):
            layers.append(Block())
        self.rows = nn.Sequential(*layers)
        self.heads = nn.ModuleDict({"a": Head()})
        self.late = nn.ModuleList()
        for _ in range(4):
            self.late.append(Late())
    def forward(self, x):
        x = self.rows(x)
        for index, block in enumerate(self.late):
            x = block(x)
        return sum(head(x) for name, head in self.heads.items())
""",
}


@pytest.mark.parametrize("name", NETS)
def test_over_several_files(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = {"nets.py": NETS[name], "loops.py": LOOPS, "main.py": MAIN}
    for filename, text in files.items():
        (tmp_path / filename).write_text(text)
    for result in lint_files(sorted(tmp_path.iterdir()), Plan(engine.LintOptions())):
        text = files[result.filename.rpartition("/")[2]]
        told = {(item.locations[0].row, item.code) for item in result.result.findings}
        wanted = {(row, code) for row, code in marks(text) if code in asked}
        assert {(row, code) for row, code in told if code in asked} == wanted


RETIED = """\
import torch
import torch_xla
from accelerate import Accelerator
from accelerate.utils import DistributedType
from transformers import AutoModelForCausalLM
def main(loader, name):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained(name)
    {lines}
"""
TIE = "if accelerator.distributed_type == DistributedType.XLA:\n        model.tie_weights()"
PREPARE = "model, loader = accelerator.prepare(model, loader)"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((TIE, PREPARE), True),
        (("model.tie_weights()", "model.to(torch_xla.device())"), True),
        (("model.tie_weights()", "model.to(accelerator.device)", PREPARE), True),
        ((PREPARE, TIE), False),
        (("model.tie_weights()", PREPARE, TIE), False),
        (("model.tie_weights()", "loader = accelerator.prepare(loader)"), False),
        (("model.tie_weights()", 'model.to("cpu")'), False),
    ],
)
def test_ties_of_a_pretrained_model_before_the_move(lines, told):
    program = RETIED.format(lines="\n    ".join(lines))
    assert ("XLA306" in {code for _, code in found(program)}) is told


@pytest.mark.parametrize("given", ["", "model, "])
def test_what_an_object_sends_of_itself_is_no_argument_of_a_caller(given):
    program = f"""\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


class Ensemble:
    def __init__(self, model):
        self.models = [model]

    def share(self{", model" if given else ""}, scale=1):
        for one in self.models:
            xm.all_reduce("sum", list(self), scale)


def train(index):
    torch.manual_seed(index)
    model = torch.nn.Linear(4, 4).to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ensemble = Ensemble(model)
    ensemble.share({given})
    for step in range(8):
        optimizer.zero_grad()
        model(torch.ones(2, 4, device=torch_xla.device())).sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


torch_xla.launch(train)
"""
    # ``found`` holds that no rule fails; the weights are not equal, whatever else is sent.
    assert "XLA426" in {code for _, code in found(program)}


def test_what_xrt_told_its_processes_is_read_in_vain():
    program = """\
import os

import torch.distributed as dist
import torch_xla.core.xla_model as xm


def own_number():
    try:
        return dist.get_rank()
    except ValueError:
        if "XRT_SHARD_ORDINAL" in os.environ:  # !XLA701
            return int(os.environ["XRT_SHARD_ORDINAL"])
        return 0


os.environ.setdefault("MY_ORDINAL", "0")
cores = int(os.getenv("XRT_SHARD_WORLD_SIZE", 1))  # !XLA701
host = os.environ["XRT_HOST_ORDINAL"]  # !XLA701
own = int(os.environ.get("MY_ORDINAL", 0)) + int(os.environ.get("PROCESS_NUMBER", 0))
"""
    told = {(row, code) for row, code in found(program) if code == "XLA701"}
    assert told == marks(program)
