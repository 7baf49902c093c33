"""Research programs as people write them: GANs, rollouts, texts that a model writes, EMA.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_in_files, marks_of, told, told_in_files

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
CRITICS = f"""\
{XM}
def adversarial(gen, critic, adams, plans, batches, device, epochs):
    adam_g, adam_c = adams
    lr_scheduler_g, lr_scheduler_c = plans
    for epoch in range(epochs):
        for real, text in pl.MpDeviceLoader(batches, device):
            fake = gen(text)
            adam_c.zero_grad()
            (critic(fake.detach()).mean() - critic(real).mean()).backward()
            xm.optimizer_step(adam_c)
            adam_g.zero_grad()
            (-critic(fake).mean()).backward()
            xm.optimizer_step(adam_g)
"""
WRITER = f"""\
{XM}
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
def improve(batches, name, score):
    device = torch_xla.device()
    tokenizer = AutoTokenizer.from_pretrained(name)
    policy = AutoModelForSeq2SeqLM.from_pretrained(name).to(device)
    adam = torch.optim.AdamW(policy.parameters())
"""

SPAWNED = f"""\
{XM}
from nets import Features, Student
def fit(student, teacher, device):
    adam = torch.optim.Adam(student.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        (student(x) - teacher(x)).pow(2).mean().backward()
        xm.optimizer_step(adam)
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA419: schedules that the master alone goes on with": f"""\
{CRITICS}
            if xm.is_master_ordinal():
                lr_scheduler_g.step()  # !XLA419
                lr_scheduler_c.step()  # !XLA419
""",
    "XLA419: by a name, once an epoch": f"""\
{CRITICS}
        main = xm.is_master_ordinal()
        if main:
            print(epoch)
            lr_scheduler_c.step()  # !XLA419
        lr_scheduler_g.step()
""",
    "XLA419: what the master alone does to weights that nobody trains": f"""\
{CRITICS}
            lr_scheduler_g.step()
            lr_scheduler_c.step()
            if xm.is_master_ordinal():
                ema.step(gen)
                bar.step()
""",
    "XLA423: the cores meet in the closure of each step": f"""\
{XM}
import numpy as np
class Trainer:
    def fit(self, net, adam, batches):
        while True:
            for x, y in batches:
                loss = net(x, y)
                loss.backward()
                xm.optimizer_step(adam)
                adam.zero_grad()
                def after():
                    self.seen += xm.mesh_reduce("seen", len(x), sum)  # !XLA423
                    for key, value in {{"loss": loss}}.items():
                        self.log[key] = xm.mesh_reduce(key, value, np.mean)  # !XLA423
                xm.add_step_closure(after)
""",
    "XLA423: in the closure of some steps": f"""\
{XM}
class Trainer:
    def fit(self, net, adam, batches):
        while True:
            for number, (x, y) in enumerate(batches):
                net(x, y).backward()
                xm.optimizer_step(adam)
                def after():
                    self.seen += xm.mesh_reduce("seen", len(x), sum)
                if number % 50 == 0:
                    xm.add_step_closure(after)
""",
    "XLA101 XLA109 XLA206: a policy that writes texts": f"""\
{WRITER}
    for batch in batches:
        ids = batch["ids"].to(device)
        with torch.no_grad():
            written = policy.generate(ids, max_new_tokens=16, do_sample=True)  # !XLA109 !XLA206
            texts = tokenizer.batch_decode(written, skip_special_tokens=True)  # !XLA101
        loss = policy(input_ids=ids, labels=written).loss * score(texts)
        adam.zero_grad()
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "XLA101 XLA109 XLA206: one text at a time, of a model that is handed in": f"""\
{XM}
def validate(model, batches, device, tokenizer, metric):
    model.eval()
    with torch.no_grad():
        for batch in pl.MpDeviceLoader(batches, device):
            written = model.generate(  # !XLA109 !XLA206
                input_ids=batch["ids"], num_beams=4, max_length=64)
            for row in written:
                metric.add(tokenizer.decode(row))  # !XLA101
""",
    "XLA101 XLA109 XLA206: a cache of fixed size": f"""\
{WRITER}
    for batch in batches:
        ids = batch["ids"].to(device)
        written = policy.generate(ids, cache_implementation="static")  # !XLA109
        policy(input_ids=ids, labels=written).loss.backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "XLA101 XLA109 XLA206: also once in so many epochs; on the host, and another generate": f"""\
{WRITER}
    tales = Tales().to(device)
    for epoch in range(3):
        for batch in batches:
            ids = batch["ids"].to(device)
            (policy(input_ids=ids, labels=ids).loss + tales.generate(ids).mean()).backward()
            xm.optimizer_step(adam, barrier=True)
            text = tokenizer.batch_decode(batch["ids"])
        print(tokenizer.decode(policy.generate(ids, max_new_tokens=16)[0]))  # !XLA109 !XLA206
        if epoch % 10 == 0:
            print(tokenizer.decode(policy.generate(ids, max_new_tokens=16)[0]))  # !XLA206
class Tales(torch.nn.Module):
    def generate(self, ids):
        return self.head(ids)
""",
    "XLA426: another model is loaded and only evaluated": f"""\
{SPAWNED}
def main(index):
    device = torch_xla.device()
    vgg = Features()
    vgg.load_state_dict(torch.load("vgg.pth"))
    vgg.to(device).eval()
    student = Student(64).to(device)  # !XLA426
    fit(student, vgg, device)
xmp.spawn(main)
""",
    "XLA426: what is loaded is trained": f"""\
{SPAWNED}
def main(index):
    device = torch_xla.device()
    vgg = Features()
    vgg.load_state_dict(torch.load("vgg.pth"))
    vgg.eval()
    vgg.train()
    student = Student(64).to(device)
    fit(student, vgg, device)
xmp.spawn(main)
""",
    "XLA605: a transform of samples works on the device": f"""\
{XM}
from torchvision import transforms
class Stylize:
    def __init__(self, net, device):
        self.net, self.device = net, device
    def __call__(self, image):
        return self.net(image.to(self.device)).cpu()  # !XLA605
class Flip:
    def __call__(self, image):
        return image.flip(-1)
def look(image):
    return image.to(xm.xla_device())  # !XLA605
def train(net, faces, vgg):
    device = torch_xla.device()
    style = Stylize(vgg, device)
    row = transforms.Compose([Flip(), transforms.ToTensor(), style])
    return Faces(faces, transform=row), Faces(faces, transform=look)
""",
    "XLA305: to the CPU and back, to save it": f"""\
{XM}
import copy
def keep(net, path):
    net.cpu()  # !XLA305
    torch.save(net.state_dict(), path)
def fit(build, batches, device, epochs):
    net = build().to(device)
    ema = copy.deepcopy(net)
    adam = torch.optim.Adam(net.parameters())
    for epoch in range(epochs):
        for x, y in pl.MpDeviceLoader(batches, device):
            adam.zero_grad()
            net(x, y).backward()
            xm.optimizer_step(adam)
        if epoch % 5 == 0:
            copy.deepcopy(net).cpu()
            ema.to("cpu")
            best = {{name: value.cpu() for name, value in net.state_dict().items()}}
            kept = net.to("cpu")  # !XLA305
            net.to(device)
        keep(net, "last.pt")
        net.to(device)
    net.cpu()
""",
    "XLA101 XLA603: an agent that another file lets act and learn": f"""\
{XM}
import random
from nets import Policy
class Agent:
    def __init__(self, seen, device=None):
        self.device = device or torch_xla.device()
        self.policy = Policy(seen)
        self.policy.to(self.device)
        self.adam = torch.optim.Adam(self.policy.parameters())
        self.memory = []
    @torch.no_grad()
    def select_action(self, state):
        state = torch.as_tensor(state, device=self.device)
        return self.policy(state).argmax().item()  # !XLA101
    def learn(self):
        rows = random.sample(self.memory, 64)
        states, gains = zip(*rows)
        states = torch.stack(states).to(self.device)  # !XLA603
        loss = -(self.policy(states) * torch.tensor(gains, device=self.device)).mean()
        self.adam.zero_grad()
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
        return loss.item()  # !XLA101
    def report(self):
        return self.policy.scale.item()
""",
    "XLA101 XLA603: acts and learns in one file": f"""\
{XM}
class Agent:
    def __init__(self, net, adam, memory):
        self.device = torch_xla.device()
        self.net, self.adam, self.memory = net.to(self.device), adam, memory
    def act(self, state):
        state = torch.tensor(state).to(self.device)
        return self.net(state).argmax().item()  # !XLA101
    def learn(self):
        states, gains = self.memory.sample(64)
        states = torch.tensor(states, device=self.device)  # !XLA603
        self.adam.zero_grad()
        (self.net(states) * gains.to(self.device)).mean().backward()
        xm.optimizer_step(self.adam, barrier=True)
def play(env, agent):
    state = env.reset()
    for turn in range(10_000):
        state, gain, done, _ = env.step(agent.act(state))
        agent.memory.add(state, gain)
        agent.learn()
""",
    "XLA101: what acts and learns nothing": f"""\
{XM}
class Player:
    def act(self, state):
        return state.item()
    def update(self, seen):
        self.seen = seen
class Optimizer:
    def update(self, loss):
        loss.backward()
        xm.optimizer_step(self.adam, barrier=True)
        return loss
""",
    "XLA603: rows of a text that is on the host": f"""\
{XM}
def rows(text, at, length, device):
    part = text[at : at + length]
    return part.to(device)  # !XLA603
def train(net, text, table, adam):
    device = torch_xla.device()
    net.to(device)
    table = table.to(device)
    for at in range(0, len(text), 64):
        loss = net(rows(text, at, 64, device), table[at])
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "XLA603: windows that are drawn": f"""\
{XM}
def drawn(tokens, length, number):
    places = torch.randint(len(tokens) - length, (number,))
    x = torch.stack([tokens[i : i + length] for i in places])
    y = torch.stack([tokens[i + 1 : i + 1 + length] for i in places])
    return x, y
def made(device):
    return torch.zeros(4, device=device), torch.ones(4, device=device)
def train(net, tokens, adam, steps):
    device = torch_xla.device()
    net.to(device)
    for step in range(steps):
        x, y = drawn(tokens, 128, 8)
        x, y = x.to(device), y.to(device)  # !XLA603
        h, c = made(device)
        net(x, y, h.to(device), c.to(device)).backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "XLA101 XLA603: the device in a dictionary, reads on each step of the optimizer": f"""\
{XM}
def train(net, batches, cfg, adam, accumulation_steps):
    net = net.to(cfg["device"])
    losses, grad_accum = [], 4
    for number, (x, y) in enumerate(batches):
        x, y = x.to(cfg["device"]), y.to(cfg["device"])  # !XLA603
        loss = net(x, y) / accumulation_steps
        loss.backward()
        if (number + 1) % accumulation_steps == 0:
            xm.optimizer_step(adam, barrier=True)
            adam.zero_grad()
            losses.append(loss.item())  # !XLA101
        if not number % grad_accum:
            losses.append(loss.item())  # !XLA101
        if number % 50 == 0:
            print(loss.item())
        if (number + 1) % accumulation_steps == 0 and number % cfg["log"] == 0:
            print(loss.item())
""",
    "XLA101: what else a dictionary holds": f"""\
{XM}
def train(batches, cfg, adam, net):
    net = net.to(xm.xla_device())
    for x, y in pl.MpDeviceLoader(batches, cfg["device"]):
        net(x, y).backward()
        xm.optimizer_step(adam)
        cfg["model"].item()
        cfg["criterion"].item()
""",
    "XLA207: sizes, windows and conditions that are drawn": f"""\
{XM}
import random
import numpy as np
def train(net, adam, batches, ratio):
    device = torch_xla.device()
    net.to(device)
    for x, label in pl.MpDeviceLoader(batches, device):
        parts = 2 if random.random() < ratio else 1  # !XLA207
        noise = torch.randn([parts, len(x)], device=device)
        if np.random.random() < 0.1:  # !XLA207
            label = None
        if random.random() < 0.5:  # !XLA207
            x = x[:4]
        forced = random.random() < ratio
        teacher = True if random.random() < ratio else False
        out = net(x, noise, label)
        out = x if forced else out * 2  # !XLA207
        if teacher:  # !XLA207
            out = out + x
        word = "a" if random.random() < 0.5 else "b"
        if random.random() < 0.01:
            seen = None
        out.mean().backward()
        adam.step()
""",
    "XLA603: what an environment gives, piece by piece": f"""\
{XM}
def play(env, net, memory):
    device = torch_xla.device()
    net.to(device)
    state = env.reset()
    for turn in range(10_000):
        action = net(state).argmax().item()
        state, gain, done, _ = env.step(action)
        memory.add(torch.tensor(gain).to(device), torch.tensor(done).to(device))  # !XLA603
""",
    "XLA101 XLA102 XLA104 XLA201 XLA205: parameters and buffers of a module": f"""\
{XM}
import torch.nn as nn
class Queue(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("queue", torch.randn(128, size))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
        self.scale = nn.Parameter(torch.ones(1))
        self.layer = nn.Linear(8, 128)
        print(self.scale.item())
    def forward(self, x, lengths):
        keys = self.layer(x)
        at = int(self.at)  # !XLA102
        self.queue[:, at : at + len(x)] = keys.T  # !XLA205
        if self.scale > 3:  # !XLA104
            keys = keys * 2
        self.norm = self.layer.weight.norm().item()  # !XLA101
        longest = lengths.max().item()  # !XLA101
        places = torch.arange(longest, device=x.device)  # !XLA201
        return keys[:, :longest].sum() + places.sum()  # !XLA201
    def load(self, path):
        return self.scale.item()
def masked(lengths, longest=None):
    if longest is None:
        longest = lengths.max()
    return torch.arange(longest, device=lengths.device) < lengths[:, None]  # !XLA201
def train(batches, adam):
    device = torch_xla.device()
    net = Queue(4096).to(device)
    for x, lengths in pl.MpDeviceLoader(batches, device):
        (net(x, lengths) * masked(lengths).sum()).backward()
        xm.optimizer_step(adam)
""",
    "XLA301: back over the steps of a diffusion": f"""\
{XM}
from tqdm import tqdm
class Diffusion:
    def __init__(self, net, steps):
        self.device = torch_xla.device()
        self.net, self.steps = net.to(self.device), steps
    def cleaned(self, x, at):
        return x - self.net(x, at)
    @torch.no_grad()
    def sample(self, n):
        x = torch.randn(n, 3, 32, 32, device=self.device)
        for i in tqdm(reversed(range(self.steps)), total=self.steps):  # !XLA301
            x = self.cleaned(x, torch.full((n,), i, device=self.device))
        for i in range(self.steps - 1, -1, -1):
            x = self.cleaned(x, torch.full((n,), i, device=self.device))
            torch_xla.sync()
        return x
    def gains(self, rewards):
        last = torch.zeros(3, device=self.device)
        for t in reversed(range(10)):
            last = rewards[t] + last
        for i in range(10):
            x = self.cleaned(last, i)
        return last
""",
    "XLA301: samplers of guided-diffusion, which nobody has read": f"""\
{XM}
from diffusion import create_diffusion
from nets import DiT
def draw(latent, labels, steps):
    device = torch_xla.device()
    net, diffusion = DiT(depth=12).to(device), create_diffusion(str(steps))
    z = torch.randn(8, 4, latent, latent, device=device)
    guide = dict(y=labels.to(device), cfg_scale=4.0)
    x = diffusion.p_sample_loop(net.forward_with_cfg, z.shape, z, model_kwargs=guide)  # !XLA301
    x = diffusion.ddim_sample_loop(net, z.shape, device=device)  # !XLA301
    for turn in diffusion.p_sample_loop_progressive(net, z.shape, device=device):
        x = turn["sample"]
        torch_xla.sync()
    return x.cpu()
def draw_on_host(diffusion):
    return diffusion.p_sample_loop(DiT(depth=2), (8, 4, 32, 32))
""",
    "XLA101: a turn that is taken now and then": f"""\
{XM}
def train(gen, critic, adam_g, adam_c, batches, every):
    device = torch_xla.device()
    for number, real in enumerate(pl.MpDeviceLoader(batches, device)):
        loss_c = critic(real.to(device)).mean()
        loss_c.backward()
        xm.optimizer_step(adam_c)
        if number % every == 0:
            loss_g = critic(gen(real)).mean()
            loss_g.backward()
            xm.optimizer_step(adam_g, barrier=True)
            print(loss_g.item())
        if number % every == 1:
            print(loss_c.item())
""",
    "XLA101: once, by a flag": f"""\
{XM}
def grid(images):
    return [image.cpu() for image in images]
def validate(net, batches, device, epochs):
    for epoch in range(epochs):
        saved, first, done = False, True, False
        net.eval()
        with torch.no_grad():
            for x in pl.MpDeviceLoader(batches, device):
                y = net(x)
                if not saved:
                    grid(y)
                    saved = True
                if first:
                    y.sum().item()
                    first = False
                if not done:
                    y.mean().item()  # !XLA101
                    done = epoch > 3
""",
    "XLA303 XLA405: a file that joins the cores as it is read": f"""\
{XM}
import torch.distributed as dist
from agents import Base
dist.init_process_group(backend="xla", init_method="xla://")
class Tuner(Base):
    def run(self):
        for epoch in range(self.epochs):
            if self.epoch(epoch) < self.best:
                self.save()
    def epoch(self, number):
        total = 0.0
        for batch in pl.MpDeviceLoader(self.batches, self.device):
            loss = self.model(batch)["loss"]
            if not torch.isnan(loss).any():
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # !XLA303
                xm.optimizer_step(self.adam)  # !XLA405
                self.adam.zero_grad()
            total += loss.item()
        return xm.mesh_reduce("total", total, sum)
    def save(self):
        if xm.is_master_ordinal():
            torch.save(self.state(), "last.pt")
        xm.rendezvous("saved")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_researchers_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


#: File by file, as they stand in a project.
PROJECTS = {
    "XLA101 XLA301: helpers of helpers, none of which names XLA": {
        "main.py": """\
import torch_xla
from work.show import Show
def main(settings):
    settings.device = torch_xla.device()
    Show(settings).run()
class Settings:
    pass
main(Settings())
""",
        "work/__init__.py": "",
        "work/show.py": """\
from torch.utils.data import DataLoader
from .kept import keep
from .nets import Net
class Show:
    def __init__(self, settings):
        self.settings = settings
        self.net = Net().to(settings.device)
    def run(self):
        self.net.eval()
        for images, masks in DataLoader(self.images, batch_size=1):
            images, masks = self.moved(images, masks)
            keep(self.net(images, masks)[0])
    def moved(self, *parts):
        return (part.to(self.settings.device) for part in parts)
""",
        "work/kept.py": """\
import numpy as np
from PIL import Image
def keep(image):
    Image.fromarray(image.cpu().numpy().astype(np.uint8)).save("x.png")  # !XLA101
""",
        "work/nets.py": """\
import torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1)
    def forward(self, x, masks):
        return self.layer(x) * masks
""",
    },
    "XLA101: lengths that the program for XLA gives, beside one for other devices": {
        "speech.py": """\
import torch
class Speech(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def parsed(self, batch, longest=None, device=None):
        import torch_xla.debug.metrics as met
        lengths = batch[1].to(device)
        if longest is None:
            longest = lengths.max().item()
        return batch[0].to(device), longest
    def forward(self, x):
        return self.layer(x[0]).mean()
""",
        "train.py": """\
import torch
from speech import Speech
def train(batches):
    net = Speech().cuda()
    adam = torch.optim.Adam(net.parameters())
    for batch in batches:
        net(net.parsed(batch, device="cuda")).backward()
        adam.step()
""",
        "train_tpu.py": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from speech import Speech
def train(batches, settings):
    device = torch_xla.device()
    net = Speech().to(device)
    adam = torch.optim.Adam(net.parameters())
    for batch in batches:
        net(net.parsed(batch, longest=settings.longest, device=device)).backward()
        xm.optimizer_step(adam, barrier=True)
""",
    },
}


@pytest.mark.parametrize("name", PROJECTS)
def test_over_the_files_of_a_project(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = PROJECTS[name]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)
