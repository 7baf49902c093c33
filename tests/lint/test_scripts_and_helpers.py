"""Scripts that get their device of a helper, agents and Trainers, as people write them.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks, rows

from xladoctor.lint.engine import LintOptions
from xladoctor.lint.run import Plan, lint_files


def told(folder, files, *asked):
    """(file, row, code) of what is found in a folder of files, of the codes that are asked for."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    names = [str(folder / name) for name in files]
    results = lint_files(names, Plan(LintOptions()), jobs=1)
    seen = set()
    for item in results:
        assert item.result.failures == ()
        name = str(item.filename)[len(str(folder)) + 1 :]
        seen |= {
            (name, one.locations[0].row, one.code)
            for one in item.result.findings
            if one.code in asked
        }
    return seen


def wanted(files):
    """What the marks in files say."""
    return {(name, row, code) for name, text in files.items() for row, code in marks(text)}


DEVICE = """\
def accelerator():
    import torch_xla

    return torch_xla.device()
"""
AGENT = """\
import torch
import torch.nn as nn


class Agent(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.body = nn.Linear(8, actions)

    def forward(self, seen):
        where = next(self.parameters()).device
        return self.body(torch.tensor(seen, device=where, dtype=torch.float))

    def values(self, seen):
        with torch.no_grad():
            out = self.forward(seen)
        return out.cpu().numpy()  # !XLA101
"""
MEMORY = """\
import random


class Memory:
    def __init__(self):
        self.kept = []

    def add(self, *step):
        self.kept.append(step)

    def sample(self, count):
        return zip(*random.sample(self.kept, count))
"""
PLAY = """\
import torch
import torch.nn.functional as F


def act(env, agent, seen, memory, turns):
    for _ in range(turns):
        action = agent.values([seen]).argmax()
        following, reward, done, _ = env.step(action)
        memory.add(seen, action, reward, following)
        seen = env.reset() if done else following
    return seen


def miss(states, actions, rewards, agent, device):
    states = torch.tensor(states, device=device)  # !XLA603
    out = agent(states).gather(1, torch.tensor(actions, device=device).view(-1, 1))
    gap = (out - torch.tensor(rewards, device=device)).abs()
    return gap.mean(), gap.detach().cpu().numpy()  # !XLA101
"""
TRAIN = """\
import argparse

import torch

import place
from agents import Agent
from tools.memory import Memory
from tools.play import act, miss


def train(make_env, agent, device, opt):
    adam = torch.optim.Adam(agent.parameters())
    env = make_env()
    replay = Memory()
    seen = act(env, agent, env.reset(), replay, 100)
    for step in range(opt.steps):
        seen = act(env, agent, seen, replay, 4)
        states, actions, rewards, _ = replay.sample(32)
        adam.zero_grad()
        loss, gap = miss(states, actions, rewards, agent, device)
        loss.backward()
        adam.step()  # !XLA301
        if step % 50 == 0:
            print(loss.item())  # !XLA113


def main(make_env):
    parser = argparse.ArgumentParser()
    parser.add_argument("--tpu", action="store_true")
    parser.add_argument("--steps", type=int, default=1000)
    opt = parser.parse_args()
    if opt.tpu:
        device = place.accelerator()
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train(make_env, Agent(4).to(device), device, opt)
"""
LEARNER = {
    "place.py": DEVICE,
    "agents.py": AGENT,
    "tools/memory.py": MEMORY,
    "tools/play.py": PLAY,
    "train.py": TRAIN,
}
OF_LEARNER = ("XLA101", "XLA113", "XLA301", "XLA603")


def test_what_a_script_imports_beside_the_file_that_gives_its_device_is_linted_with_it(tmp_path):
    seen = told(tmp_path, LEARNER, *OF_LEARNER)
    assert seen == wanted(LEARNER)


def test_the_same_program_for_other_devices_gets_nothing(tmp_path):
    plain = LEARNER | {
        "place.py": "import torch\n\n\ndef accelerator():\n    return torch.device('cuda')\n"
    }
    assert told(tmp_path, plain, *OF_LEARNER) == set()


PROCESSES = """\
import torch
import torch.multiprocessing as mp
import torch.optim as optim
import torch_xla

from nets import Policy


class SharedAdam(optim.Adam):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])


def work(make_env, shared, adam, device, number):
    local = Policy().to(device)
    for turn in range(100_000):
        local.load_state_dict(shared.state_dict())
        loss = torch.zeros((1, 1)).to(device)  # !XLA604
        for _ in range(20):
            loss = loss + local(torch.rand(1, 4, device=device)).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()  # !XLA301
        if turn % 50 == 0:
            print(loss.item())  # !XLA113


def main(make_env, count):
    device = torch_xla.device()
    shared = Policy().to(device)
    adam = SharedAdam(shared.parameters())
    started = [
        mp.Process(target=work, args=(make_env, shared, adam, device, n)) for n in range(count)
    ]
    for one in started:
        one.start()
"""


@pytest.mark.parametrize(
    "start",
    [
        "mp.Process(target=work, args=(make_env, shared, adam, device, n))",
        "mp.get_context('spawn').Process(target=work, args=(make_env, shared, adam, device, n))",
        "threading.Thread(target=work, args=[make_env, shared, adam, device, n])",
    ],
)
def test_what_a_process_is_started_with_is_known_in_its_function(start):
    program = PROCESSES.replace(
        "mp.Process(target=work, args=(make_env, shared, adam, device, n))", start
    ).replace("import torch\n", "import threading\nimport torch\n", 1)
    asked = {"XLA113", "XLA301", "XLA604"}
    assert {item for item in found(program) if item[1] in asked} == marks(program)


def test_an_optimizer_of_the_program_takes_steps():
    program = """\
import torch
import torch_xla
from torch.utils.data import DataLoader


class Signs(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad.sign(), alpha=-group["lr"])


def main(data):
    model = torch.nn.Linear(4, 4).to(torch_xla.device())
    signs = Signs(model.parameters(), {"lr": 0.1})
    for x in DataLoader(data, batch_size=8, drop_last=True):
        signs.zero_grad()
        model(x.to(torch_xla.device())).mean().backward()
        signs.step()  # !XLA301
"""
    assert {item for item in found(program) if item[1] == "XLA301"} == marks(program)


DIFFUSION = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Noise:
    def __init__(self, steps=1000, device="cuda"):
        self.steps, self.device = steps, device
        self.kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps, device=self.device), 0)

    def draw(self, n):
        return torch.randint(low=1, high=self.steps, size=(n,))

    def noised(self, x, t):
        eps = torch.randn_like(x)
        return self.kept[t].sqrt()[:, None] * x + eps, eps

    def epoch(self, model, loader, adam):
        for x, other in loader:
            adam.zero_grad()
            t = self.draw(x.shape[0]).to(self.device)  # !XLA604
            noised, eps = self.noised(x, t)
            noised = torch.concat((noised, other), dim=1)
            (model(noised, t) - eps).pow(2).mean().backward()
            xm.optimizer_step(adam)

    def train(self, model, adam, data):
        for _ in range(10):
            ON_THE_DEVICE
            self.epoch(model, batches, adam)
"""


@pytest.mark.parametrize(
    "made",
    [
        "batches = pl.ParallelLoader(data, [self.device]).per_device_loader(self.device)",
        "batches = pl.MpDeviceLoader(data, self.device)",
        "batches = pl.MpDeviceLoader(data, device=self.device)",
        "batches = pl.ParallelLoader(data, devices=[self.device]).per_device_loader(self.device)",
    ],
)
def test_what_a_device_loader_is_given_is_a_device_whatever_its_default_says(made):
    program = DIFFUSION.replace("ON_THE_DEVICE", made)
    assert {item for item in found(program) if item[1] in {"XLA604", "XLA206"}} == marks(program)


def test_a_device_that_no_device_loader_is_given_is_what_its_default_says():
    program = DIFFUSION.replace("ON_THE_DEVICE", "batches = data")
    assert rows(program, "XLA604") == []


GROWING = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from transformers.trainer_pt_utils import nested_concat


def evaluate(model, loader, step, every):
    model.eval()
    losses = outs = None
    with torch.no_grad():
        for number, batch in enumerate(pl.MpDeviceLoader(loader, torch_xla.device())):
            loss, out = step(model, batch), model(batch)
            KEPT
    return losses, outs
"""


@pytest.mark.parametrize(
    "kept",
    [
        "outs = out if outs is None else torch.cat((outs, out), dim=0)",
        "outs = torch.cat([outs, out]) if outs is not None else out",
        "outs = out if outs is None else nested_concat(outs, out, padding_index=-100)",
        (
            "outs = torch.cat((outs, out))\n"
            "            if number % every == 9:\n"
            "                outs = None"
        ),
    ],
)
def test_what_is_kept_from_the_first_batch_on_grows(kept):
    assert rows(GROWING.replace("KEPT", kept), "XLA206") == [13]


@pytest.mark.parametrize(
    "kept",
    [
        "outs, rest = out, loss\n            outs = torch.cat((outs, out))",
        "[outs, rest] = out, loss\n            outs = torch.cat((outs, out))",
        "outs = None\n            outs = out if outs is None else torch.cat((outs, out))",
        "both = out if outs is None else torch.cat((outs, out))",
    ],
)
def test_what_starts_anew_in_each_turn_does_not_grow(kept):
    assert rows(GROWING.replace("KEPT", kept), "XLA206") == []


TRAINER = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from transformers import Trainer
from transformers.trainer_pt_utils import nested_concat


class OwnTrainer(Trainer):
    def evaluation_loop(self, dataloader, description, prediction_loss_only=None):
        model = self._wrap_model(self.model, training=False)
        model.eval()
        losses = outs = None
        for inputs in pl.MpDeviceLoader(dataloader, self.args.device):
            loss, logits, labels = self.prediction_step(model, inputs, prediction_loss_only)
            losses = loss if losses is None else torch.cat((losses, loss))  # !XLA206
            outs = logits if outs is None else nested_concat(outs, logits)  # !XLA206
        return losses, outs
"""


def test_what_the_prediction_step_of_a_trainer_gives_is_on_the_device():
    assert {item for item in found(TRAINER) if item[1] == "XLA206"} == marks(TRAINER)


def test_the_prediction_step_of_any_other_class_says_nothing():
    program = TRAINER.replace("from transformers import Trainer\n", "from mine import Trainer\n")
    assert rows(program, "XLA206") == []


ARGUMENTS = """\
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import Trainer

from settings import OwnTrainingArguments


def _mp_fn(index):
    settings = OwnTrainingArguments(
        output_dir="out",
        masking="span",
        tpu_num_cores=8,  # !XLA905
        logging_steps=1,  # !XLA905
        dataloader_drop_last=True,
        optim="adamw_torch",
        per_device_train_batch_size=4,
    )
    Trainer(model=None, args=settings).train()


if __name__ == "__main__":
    xmp.spawn(_mp_fn)
"""
FIELDS = """\
from dataclasses import dataclass, field
from typing import Optional

from transformers import TrainingArguments


@dataclass
class OwnTrainingArguments(TrainingArguments):
    masking: Optional[str] = field(default="span")
    group_by_length: Optional[bool] = field(default=True)  # !XLA905
    fp16: bool = False
    logging_steps: int = 1  # !XLA905
    learning_rate: float = 1e-3
"""


def test_settings_of_a_class_that_a_trainer_takes_are_told():
    """The class stands in a file that nobody can read."""
    assert {item for item in found(ARGUMENTS) if item[1] == "XLA905"} == marks(ARGUMENTS)


def test_defaults_of_a_class_built_on_training_arguments_are_told(tmp_path):
    files = {"settings.py": FIELDS, "train.py": ARGUMENTS}
    assert told(tmp_path, files, "XLA905") == wanted(files)


def test_what_the_class_sets_itself_is_not_missing(tmp_path):
    less = ARGUMENTS.replace('        optim="adamw_torch",\n', "")
    more = FIELDS + '    optim: str = "adafactor"\n'
    asked = told(tmp_path, {"settings.py": more, "train.py": less}, "XLA905")
    assert len([item for item in asked if item[0] == "train.py"]) == 2


def test_the_same_settings_for_other_devices_are_left_alone(tmp_path):
    plain = ARGUMENTS
    for mention in ("import torch_xla", "tpu_num_cores", "xmp.spawn"):
        plain = "\n".join(line for line in plain.split("\n") if mention not in line)
    plain = plain.replace("_mp_fn", "work") + "    work(0)\n"
    assert told(tmp_path, {"settings.py": FIELDS, "train.py": plain}, "XLA905") == set()


INHERITED = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, width)


class Tagger(Base):
    def __init__(self, width, tags):
        super().__init__(width)
        self.head = nn.Linear(width, tags)

    def forward(self, x):
        return self.head(self.body(x))


def _mp_fn(index, loader):
    device = torch_xla.device()
    SEED
    model = Tagger(16, 4).to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        xm.optimizer_step(sgd)


if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=([],))
"""


def test_a_model_that_inherits_through_a_class_of_the_program_draws_its_weights():
    assert rows(INHERITED.replace("SEED", "pass"), "XLA426") == [26]
    assert rows(INHERITED.replace("SEED", "torch.manual_seed(1)"), "XLA426") == []


SONGS = """\
import numpy as np
import torch
from torch.utils.data import Dataset


class Dataset(Dataset):
    def __init__(self, songs):
        self.songs = songs

    def collate_fn(self, batch):
        batch = [x for x in batch if x is not None]
        most = max([x["frames"].shape[0] for x in batch])  # !XLA209
        frames = np.zeros((len(batch), most, 64), dtype=np.float32)
        for i, one in enumerate(batch):
            frames[i, : one["frames"].shape[0]] = one["frames"]
        return torch.from_numpy(frames)
"""
OF_SONGS = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader

from songs import Dataset as Songs


def build(songs):
    return Songs(songs)


def main(songs, model, adam):
    data = build(songs)
    loader = DataLoader(data, batch_size=8, drop_last=True, collate_fn=data.collate_fn)
    for frames in pl.MpDeviceLoader(loader, torch_xla.device()):
        adam.zero_grad()
        model(frames).mean().backward()
        adam.step()
"""


@pytest.mark.parametrize("base", ["Dataset", "torch.utils.data.Dataset"])
def test_a_class_that_is_called_as_its_imported_base_is_known_where_it_is_imported(tmp_path, base):
    files = {"songs.py": SONGS.replace("(Dataset)", f"({base})"), "train.py": OF_SONGS}
    assert told(tmp_path, files, "XLA209") == wanted(files)


CLIPPED = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

from tools import clip_gradients


def _mp_fn(index, loader, model, adam):
    device = torch_xla.device()
    for x in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        model(x).mean().backward()
        REDUCE
        clip_gradients(model, 3.0)  # here
        STEP


if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=([], None, None))
"""
TOOLS = """\
def clip_gradients(model, clip):
    for p in model.parameters():
        if p.grad is not None:
            scale = (clip / (p.grad.norm(2) + 1e-6)).clamp(max=1.0)
            SCALED
"""


@pytest.mark.parametrize(
    "scaled", ["p.grad.data.mul_(scale)", "p.grad.mul_(scale)", "p.grad *= scale"]
)
def test_a_clip_by_hand_before_the_reduction_is_told_at_its_call(tmp_path, scaled):
    tools = TOOLS.replace("SCALED", scaled)
    train = CLIPPED.replace("REDUCE", "pass").replace("STEP", "xm.optimizer_step(adam)")
    assert told(tmp_path, {"tools.py": tools, "train.py": train}, "XLA303") == {
        ("train.py", 15, "XLA303")
    }
    train = CLIPPED.replace("REDUCE", "xm.reduce_gradients(adam)").replace("STEP", "adam.step()")
    assert told(tmp_path, {"tools.py": tools, "train.py": train}, "XLA303") == set()


def test_what_only_measures_gradients_clips_nothing(tmp_path):
    tools = TOOLS.replace("SCALED", "print(scale)")
    train = CLIPPED.replace("REDUCE", "pass").replace("STEP", "xm.optimizer_step(adam)")
    assert told(tmp_path, {"tools.py": tools, "train.py": train}, "XLA303") == set()


OBSERVED = """\
import numpy as np
import torch
import torch.nn as nn
import torch_xla


def act(env, turns):
    device = torch_xla.device()
    net = nn.Linear(4, 4).to(device)
    seen = env.reset()
    for _ in range(turns):
        GIVEN
        with torch.no_grad():
            action = net(given).argmax().item()
        seen, reward, done, _ = env.step(action)
        if done:
            seen = env.reset()
"""


@pytest.mark.parametrize(
    "given",
    [
        "given = torch.tensor(seen, device=device)",
        "given = torch.as_tensor(seen, device=device, dtype=torch.float)",
        "given = torch.tensor(np.array([seen])).to(device)",
        "given = torch.FloatTensor(seen).unsqueeze(0).to(device)",
        "given = torch.from_numpy(seen).float().to(device)",
    ],
)
def test_a_tensor_made_of_what_the_environment_gives_is_an_upload_on_each_of_its_steps(given):
    assert rows(OBSERVED.replace("GIVEN", given), "XLA603") == [12]


def test_what_an_environment_gives_may_be_a_tensor_of_the_device():
    program = OBSERVED.replace("GIVEN", "given = seen.to(device)")
    assert rows(program, "XLA603") == []
    program = OBSERVED.replace("GIVEN", "given = torch.ones(4, device=device)")
    assert rows(program, "XLA603") == []
