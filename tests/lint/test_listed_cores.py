"""What only some cores do, or each core for itself, once listed as missed: told or not.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_of, told

XM = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
TRAINED = """
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        return self.last(x)
"""
SPLITTING = """
import random
import numpy as np
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, DistributedSampler, Subset, SubsetRandomSampler
from torch.utils.data import random_split

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        return self.last(x)
"""
SPLIT = """
    net = Net().to(device)
    xm.broadcast_master_param(net)
    batches = DataLoader(train, batch_size=8, sampler=DistributedSampler(train), drop_last=True)

    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA416: number of a device in a variable": XM
    + NET
    + """
import os
def main(index, flags):
    n = index + 1
    device = xm.xla_device(n)  # !XLA416
    device2 = torch.device(f"xla:{index}")  # !XLA416
    device3 = "xla:" + str(index)  # !XLA416
    number = 3
    device5 = torch_xla.device(number)  # !XLA416
    device6 = torch.device("xla", index)  # !XLA416
    device7 = torch.device("xla:%d" % index)  # !XLA416
    device8 = torch.device("xla:{}".format(index))  # !XLA416
    net = Net().to(device)
    net = Net().to(device2).to(device3).to(device5)
    net = Net().to(device6).to(device7).to(device8)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA416: healthy numbers": XM
    + NET
    + """
def main(index, flags):
    device = torch_xla.device(0)
    first = 0
    other = torch.device("xla", first)
    third = torch.device(f"xla:{first}")
    named = f"xla:{index} is mine"
    print("xla: %d" % index)
    net = Net().to(device).to(other).to(third)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA405 XLA406: save behind shared condition": XM
    + NET
    + """
import os
class Trainer:
    def __init__(self, args, device):
        self.args = args
        self.device = device
        self.net = Net().to(device)
        self.adam = torch.optim.Adam(self.net.parameters())
        self.best = 0
        self.warm = 5
    def train(self, epoch, batches):
        for x, y in pl.MpDeviceLoader(batches, self.device):
            self.adam.zero_grad()
            self.net(x).sum().backward()
            xm.optimizer_step(self.adam)
    def test(self, epoch, batches):
        total = 0.0
        for x, y in pl.MpDeviceLoader(batches, self.device):
            total = total + self.net(x).sum()
        score = xm.mesh_reduce("score", total.item(), sum)
        if score > self.best:
            self.best = score
            xm.save(self.net.state_dict(), "best.pt")
        if epoch >= self.warm:
            xm.save(self.net.state_dict(), "last.pt")
def main(index, args):
    device = torch_xla.device()
    torch.manual_seed(1)
    trainer = Trainer(args, device)
    if args.mode == "train":
        for epoch in range(args.epochs):
            trainer.train(epoch, args.batches)
            trainer.test(epoch, args.batches)
    else:
        trainer.test(0, args.batches)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA434: if noise is None, all give": XM
    + NET
    + """
class Diffusion:
    def __init__(self, net):
        self.net = net
    def q_sample(self, x, t, noise=None):
        if noise is None:
            noise = torch.randn_like(x)
        return x + noise
    def loss(self, x, t, noise=None):
        noise = noise if noise is not None else torch.randn_like(x)  # !XLA434
        return (self.net(self.q_sample(x, t, noise=noise)) - noise).pow(2).mean()
def default(value, other):
    return value if value is not None else other()
def mixed(x, noise=None):
    noise = default(noise, lambda: torch.randn_like(x))
    return x + noise
def blend(x, noise=None):
    noise = torch.randn_like(x) if noise is None else noise
    return x + noise
def other(x, noise=None):
    if noise is not None:
        return x + noise
    return x + torch.randn_like(x)
def main(index, batches):
    device = torch_xla.device()
    torch.manual_seed(1)
    diffusion = Diffusion(Net().to(device))
    adam = torch.optim.Adam(diffusion.net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        noise = torch.randn_like(x)  # !XLA434
        diffusion.loss(x, 3).backward()
        mixed(x, noise)
        blend(x, noise)
        other(x, noise=noise)
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA406: downloads": XM
    + NET
    + """
import os, urllib.request, gdown, wget, zipfile, tarfile, subprocess, requests, shutil
from google.cloud import storage
from torchvision.datasets import CIFAR10
def fetch(name):
    client = storage.Client()
    client.bucket("b").blob(name).download_to_filename("/tmp/" + name)  # !XLA406
def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = Net().to(device)
    fetch("x")
    wget.download("https://x/y.zip", "y.zip")  # !XLA406
    with zipfile.ZipFile("y.zip") as z:
        z.extractall("data")  # !XLA406
    tarfile.open("y.tgz").extractall("data")  # !XLA406
    shutil.unpack_archive("y.zip", "data")  # !XLA406
    shutil.copyfile("a", "b")  # !XLA406
    subprocess.run(["wget", "https://x/y.bin"])  # !XLA406
    subprocess.check_call("gsutil cp gs://b/x /tmp/x", shell=True)  # !XLA406
    os.system("gsutil -m cp -r gs://b/x /tmp/x")  # !XLA406
    os.system("wget https://x/y.bin")  # !XLA406
    batches = torch.utils.data.DataLoader([1])
"""
    + TRAINED,
    "XLA406: gs downloads": XM
    + NET
    + """
import os, subprocess
from google.cloud import storage
def fetch(name):
    client = storage.Client()
    client.bucket("b").blob(name).download_to_filename("/tmp/" + name)  # !XLA406
def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = Net().to(device)
    fetch("x")
    subprocess.check_call("gsutil cp gs://b/x /tmp/x", shell=True)  # !XLA406
    os.system("gsutil -m cp -r gs://b/x /tmp/x")  # !XLA406
    batches = torch.utils.data.DataLoader([1])
"""
    + TRAINED,
    "XLA406: healthy downloads": XM
    + NET
    + """
import os, urllib.request, zipfile, subprocess, shutil
def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = Net().to(device)
    if xm.is_master_ordinal():
        os.system("wget https://x/y.bin")
        subprocess.run(["wget", "https://x/y.bin"])
        zipfile.ZipFile("y.zip").extractall("data")
    xm.rendezvous("there")
    os.system(f"wget https://x/y{index}.bin")
    os.system("nvidia-smi")
    subprocess.run(["ls", "data"])
    subprocess.run(["gsutil", "ls", "gs://b"])
    shutil.copyfile("a", f"b{index}")
    zipfile.ZipFile("y.zip").extractall(f"/tmp/{index}")
    batches = torch.utils.data.DataLoader([1])
"""
    + TRAINED
    + """
    os.system("wget https://x/z.bin")
""",
    "XLA405: rendezvous some cores come to through a helper": XM
    + NET
    + """
def is_main():
    return xm.is_master_ordinal()
def wait(tag):
    xm.rendezvous(tag)
class Saver:
    def __init__(self):
        self.main = xm.is_master_ordinal()
    def save(self, net):
        if self.main:
            xm.save(net.state_dict(), "x.pt", master_only=False)
            self.sync()  # !XLA405
    def sync(self):
        xm.rendezvous("saved")
def save(net):
    torch.save({}, "x")
    wait("saved")
def only_main(f):
    def inner(*a, **k):
        if xm.is_master_ordinal():
            return f(*a, **k)
    return inner
@only_main
def report(loss):
    return xm.mesh_reduce("loss", loss, sum)  # !XLA405
def main(index, batches):
    device = torch_xla.device()
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    saver = Saver()
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
    saver.save(net)
    report(1.0)
    if not is_main():
        return
    save(net)  # !XLA405
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA401 XLA405 XLA406: a decorator for the master 0": XM
    + """
def on_master(f):
    def inner(*given, **named):
        if xm.is_master_ordinal():
            return f(*given, **named)
    return inner
"""
    + NET
    + """
@on_master
def told(text):
    print(text)
    with open("log.txt", "w") as file:
        file.write(text)
@on_master
def summed(loss):
    return xm.mesh_reduce("loss", loss, sum)  # !XLA405
def timed(f):
    def inner(*given):
        return f(*given)
    return inner
@timed
def shown(text):
    print(text)  # !XLA401
def main(index, batches):
    device = torch_xla.device()
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
    told("done")
    summed(1.0)
    shown("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA401 XLA405 XLA406: a decorator for the master 1": XM
    + """
import functools
def on_master(f):
    @functools.wraps(f)
    def inner(*given, **named):
        if not xm.is_master_ordinal():
            return None
        return f(*given, **named)
    return inner
"""
    + NET
    + """
@on_master
def told(text):
    print(text)
    with open("log.txt", "w") as file:
        file.write(text)
@on_master
def summed(loss):
    return xm.mesh_reduce("loss", loss, sum)  # !XLA405
def timed(f):
    def inner(*given):
        return f(*given)
    return inner
@timed
def shown(text):
    print(text)  # !XLA401
def main(index, batches):
    device = torch_xla.device()
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
    told("done")
    summed(1.0)
    shown("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA401 XLA405 XLA406: a decorator for the master 2": XM
    + """
import torch_xla.runtime as xr
class Master:
    pass
def on_master(f):
    def inner(*given, **named):
        return f(*given, **named) if xr.global_ordinal() == 0 else None
    return inner
"""
    + NET
    + """
@on_master
def told(text):
    print(text)
    with open("log.txt", "w") as file:
        file.write(text)
@on_master
def summed(loss):
    return xm.mesh_reduce("loss", loss, sum)  # !XLA405
def timed(f):
    def inner(*given):
        return f(*given)
    return inner
@timed
def shown(text):
    print(text)  # !XLA401
def main(index, batches):
    device = torch_xla.device()
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
    told("done")
    summed(1.0)
    shown("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA448: own splits 0": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    train, test = random_split(data, [80, 20])  # !XLA448
"""
    + SPLIT,
    "XLA448: own splits 1": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    train, test = train_test_split(data, test_size=0.2)  # !XLA448
"""
    + SPLIT,
    "XLA448: own splits 2": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    order = torch.randperm(len(data))  # !XLA448
    train, test = Subset(data, order[:80]), Subset(data, order[80:])
"""
    + SPLIT,
    "XLA448: own splits 3": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    order = np.random.permutation(len(data))  # !XLA448
    train, test = Subset(data, order[:80]), Subset(data, order[80:])
"""
    + SPLIT,
    "XLA448: own splits 4": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    order = list(range(len(data)))
    random.shuffle(order)  # !XLA448
    train, test = Subset(data, order[:80]), SubsetRandomSampler(order[80:])
"""
    + SPLIT,
    "XLA448: own splits 5": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    order = list(range(len(data)))
    np.random.shuffle(order)  # !XLA448
    train, test = Subset(data, order[:80]), SubsetRandomSampler(order[80:])
"""
    + SPLIT,
    "XLA448: own splits 6": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    order = torch.randperm(len(data)).tolist()  # !XLA448
    train, test = Subset(data, order[:80]), Subset(data, order[80:])
"""
    + SPLIT,
    "XLA448: own splits 7": XM
    + SPLITTING
    + """
def parts(data):
    return random_split(data, [0.8, 0.2])  # !XLA448

def main(index, data):
    device = torch_xla.device()
    train, test = parts(data)
"""
    + SPLIT,
    "XLA448: healthy splits 0": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    train, test = random_split(data, [80, 20], generator=torch.Generator().manual_seed(0))
"""
    + SPLIT,
    "XLA448: healthy splits 1": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    train, test = train_test_split(data, test_size=0.2, random_state=7)
"""
    + SPLIT,
    "XLA448: healthy splits 2": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    train, test = train_test_split(data, shuffle=False)
"""
    + SPLIT,
    "XLA448: healthy splits 3": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    torch.manual_seed(0)
    train, test = random_split(data, [80, 20])
"""
    + SPLIT,
    "XLA448: healthy splits 4": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    np.random.seed(0)
    order = np.random.permutation(len(data))
    train, test = Subset(data, order[:80]), Subset(data, order[80:])
"""
    + SPLIT,
    "XLA448: healthy splits 5": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    order = torch.randperm(len(data))
    train = Subset(data, order)
"""
    + SPLIT,
    "XLA448: healthy splits 6": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    random.Random(0).shuffle(data)
    train, test = data[:80], data[80:]
"""
    + SPLIT,
    "XLA448: healthy splits 7": XM
    + SPLITTING
    + """
def main(index, data):
    device = torch_xla.device()
    seed_everything(3)
    order = list(range(len(data)))
    random.shuffle(order)
    train, test = order[:80], order[80:]
"""
    + SPLIT,
    "XLA448: healthy splits before the cores, of one core": XM
    + SPLITTING
    + """
def main(index, train):
    device = torch_xla.device()

    net = Net().to(device)
    xm.broadcast_master_param(net)
    batches = DataLoader(train, batch_size=8, sampler=DistributedSampler(train), drop_last=True)

    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    train, test = random_split([1], [80, 20])
    xmp.spawn(main, args=(train,))
""",
    "XLA406: what an assertion keeps from the device 0": XM
    + NET
    + """
def main(index, args, batches):
    use_tpu = args.tpu
    device = torch_xla.device() if use_tpu else torch.device("cpu")
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in batches:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
    if args.save:
        assert not use_tpu, 'not here'
        with open("kept.txt", "w") as file:
            file.write("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA406: what an assertion keeps from the device 1": XM
    + NET
    + """
def main(index, args, batches):
    use_tpu = args.tpu
    device = torch_xla.device() if use_tpu else torch.device("cpu")
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in batches:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
    if args.save:
        assert not args.tpu
        with open("kept.txt", "w") as file:
            file.write("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA406: what an assertion keeps from the device 2": XM
    + NET
    + """
def main(index, args, batches):
    use_tpu = args.tpu
    device = torch_xla.device() if use_tpu else torch.device("cpu")
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in batches:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
    if args.save:
        assert len(batches) > 3
        with open("kept.txt", "w") as file:  # !XLA406
            file.write("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA406: what an assertion keeps from the device 3": XM
    + NET
    + """
def main(index, args, batches):
    use_tpu = args.tpu
    device = torch_xla.device() if use_tpu else torch.device("cpu")
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in batches:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
    if args.save:
        assert use_tpu
        with open("kept.txt", "w") as file:  # !XLA406
            file.write("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA406: what an assertion keeps from the device 4": XM
    + NET
    + """
def main(index, args, batches):
    use_tpu = args.tpu
    device = torch_xla.device() if use_tpu else torch.device("cpu")
    torch.manual_seed(1)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in batches:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
    if args.save:
        assert net is not None and not use_tpu
        with open("kept.txt", "w") as file:
            file.write("done")
if __name__ == "__main__":
    xmp.spawn(main)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_people_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)
