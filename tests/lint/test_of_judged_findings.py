"""What was told wrongly in whole projects, or missed in public files, beside what is right.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

HEAD = """\
import os
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""

EVALUATED = f"""\
{HEAD}
import wandb
from scores import compute_metrics


def evaluate(loader, net):
    net.eval()
    guesses, truths = [], []
    with torch.no_grad():
        for images, labels in loader:
            guesses.append(net(images).argmax(-1).cpu().numpy())
            truths.append(labels.cpu().numpy())
    return compute_metrics(guesses, truths)


def _mp_fn(index, net, data):
    device = torch_xla.device()
    net = net.to(device)
    sampler = torch.utils.data.DistributedSampler(
        data, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=False
    )
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
    accuracy = evaluate(pl.MpDeviceLoader(loader, device), net)
    SAYS


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(None, None))
"""

FLAG = f"""\
{HEAD}

def _mp_fn(index):
    talks = False
    if xm.is_master_ordinal():
        talks = True
    if talks:
        print("one core alone")
    if not talks:
        print("all but one")
    if xm.is_master_ordinal():
        writes = True
    else:
        writes = False
    if writes:
        print("one core alone")
    loud = False
    for each in range(3):
        if each == 2:
            loud = True
    if loud:
        print("every core")  # !XLA401


if __name__ == "__main__":
    xmp.spawn(_mp_fn)
"""

PROGRAMS = {
    "XLA427: what every core logs": EVALUATED.replace(
        "SAYS", 'wandb.log({"accuracy": accuracy})  # !XLA427'
    ),
    "XLA427: what every core logs as its own": EVALUATED.replace(
        "SAYS", 'wandb.log({f"accuracy of core {index}": accuracy})'
    ),
    "XLA427: what one core prints": EVALUATED.replace(
        "SAYS", "xm.master_print(accuracy)  # !XLA427"
    ),
    "XLA427: what a flag of the master's lets one core print": EVALUATED.replace(
        "SAYS",
        "mine = False\n"
        "    if xm.is_master_ordinal():\n"
        "        mine = True\n"
        "    if mine:\n"
        "        print(accuracy)  # !XLA427",
    ),
    "XLA427: what every core prints is told as that": EVALUATED.replace("SAYS", "print(accuracy)"),
    "XLA427: what an unread function gathers": EVALUATED.replace(
        "compute_metrics", "gather_metrics"
    ).replace("SAYS", "xm.master_print(accuracy)"),
    "XLA427: a function that is called where it is to be started": EVALUATED.replace(
        "SAYS", "xm.master_print(accuracy)  # !XLA427"
    ).replace("xmp.spawn(_mp_fn, args=(None, None))", "xmp.spawn(_mp_fn(0, None, None))"),
    "XLA401: flags that the master sets": FLAG,
    "XLA401: what says from which core it comes": f"""\
{HEAD}

def _place(device):
    ordinal = xr.global_ordinal()
    return str(device) if ordinal < 0 else "{{}}/{{}}".format(device, ordinal)


def _named(name):
    return "run of {{}}".format(name)


def _mp_fn(index):
    print("[{{}}] begins".format(_place(torch_xla.device())))
    print("[{{}}] begins".format(_named("me")))  # !XLA401


if __name__ == "__main__":
    xmp.spawn(_mp_fn)
""",
    "XLA802: names of devices in annotations": f"""\
{HEAD}

def show(device: xm.xla_device):
    return xm.xla_device()  # !XLA802
""",
    "XLA406: who is left behind a look for torch_xla": f"""\
{HEAD}

def save(net, folder):
    try:
        import torch_xla.runtime as xr
        if xr.world_size() > 1 and xr.global_ordinal() != 0:
            return
    except ImportError:
        pass
    torch.save({{k: v.cpu() for k, v in net.state_dict().items()}}, folder + "/net.pt")


def keep(net, folder):
    try:
        if xr.global_ordinal() != 0:
            return
        folder = os.environ["RUN"]
    except KeyError:
        pass
    torch.save({{k: v.cpu() for k, v in net.state_dict().items()}}, folder + "/n.pt")  # !XLA406


def _mp_fn(index):
    torch_xla.manual_seed(1)
    net = torch.nn.Linear(2, 2).to(torch_xla.device())
    save(net, "a")
    keep(net, "b")


if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
""",
    "XLA101: at the steps of a list": f"""\
{HEAD}

def report(step, loss):
    print(step, loss.item())


def train(net, optimizer, loader, config):
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, torch_xla.device())):
        loss = (net(x) - y).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        if step in config.logging_steps:
            report(step, loss)
        if step in config.of_interest:
            print(loss.item())  # !XLA101
""",
    "XLA203: slices that are one graph": f"""\
{HEAD}

def adapt(head, optimizer, features, labels):
    order = torch.randperm(features.size(0), device=features.device)
    for start in range(0, features.size(0), 4):
        chosen = order[start : start + 4]
        loss = torch.nn.functional.cross_entropy(head(features[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head


def fit(head, optimizer, features, labels):
    order = torch.randperm(features.size(0), device=features.device)
    for start in range(0, features.size(0), 4):  # !XLA203
        chosen = order[start : start + 4]
        loss = torch.nn.functional.cross_entropy(head(features[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)


device = torch_xla.device()
net = torch.nn.Linear(8, 2).to(device)
adapt(net, torch.optim.SGD(net.parameters()), torch.rand(9, 8, device=device), torch.rand(9))
fit(net, torch.optim.SGD(net.parameters()), torch.rand(9, 8, device=device), torch.rand(9))
""",
    "XLA426: adapters that a checkpoint fills": f"""\
{HEAD}
from peft import LoraConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
from transformers import AutoModelForCausalLM


def _mp_fn(index, folder):
    device = torch_xla.device()
    net = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig())
    set_peft_model_state_dict(net, load_peft_weights(folder))
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    for batch in pl.MpDeviceLoader(range(3), device):
        net(**batch).loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=("a",))
""",
    "XLA415: one iterator that goes round for ever": f"""\
{HEAD}

def cycle(loader):
    while True:
        for data in loader:
            yield data


def train(net, optimizer, loader, others):
    device = torch_xla.device()
    batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)  # !XLA415
    batches = cycle(batches)
    kinds = {{}}
    for kind, other in others.items():
        kinds[kind] = pl.ParallelLoader(other, [device]).per_device_loader(device)  # !XLA415
        kinds[kind] = cycle(kinds[kind])
    again = cycle(pl.MpDeviceLoader(loader, device))
    for step in range(1000):
        loss = net(next(batches)).mean() + net(next(again)).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA405: a helper that a core's own norm keeps it from": f"""\
{HEAD}

def step(optimizer):
    if os.environ.get("DEBUG"):
        return
    xm.optimizer_step(optimizer)


def _mp_fn(index, net, loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
        loss = (net(x) - y).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if torch.isfinite(norm):
            step(optimizer)  # !XLA405
        optimizer.zero_grad()


if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=(None, None))
""",
    "XLA109: samples that a distribution of numbers checks": f"""\
{HEAD}

def train(net, optimizer, loader):
    noise = torch.distributions.Normal(0.0, 1.0)
    quiet = torch.distributions.Normal(0.0, 1.0, validate_args=False)
    for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
        loss = -noise.log_prob(net(x)).mean()  # !XLA109
        loss -= quiet.log_prob(net(y)).mean()
        loss += noise.entropy()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA101 XLA707: kinds of devices by enumerations": f"""\
{HEAD}
from enum import Enum

CUDA = "cuda"
XLA = "xla"


class DeviceType(Enum):
    CUDA = "cuda"
    TPU = "tpu"


def free(kind):
    if kind == DeviceType.CUDA:
        torch.cuda.synchronize()
    if kind == DeviceType.TPU:
        torch.cuda.synchronize()  # !XLA707


def train(net, optimizer, loader, kind):
    for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
        loss = (net(x) - y).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        if kind == CUDA:
            print(loss.item())
        elif kind == XLA:
            print(loss.item())  # !XLA101
        free(kind)
""",
    "XLA801: what a function of torch_xla cannot do without": f"""\
{HEAD}
from torch_xla.amp import autocast


def step(net, x, optimizer):
    with autocast():  # !XLA801
        loss = net(x).sum()
    with autocast(xm.xla_device()):
        loss += net(x).sum()
    xm.all_reduce("sum")  # !XLA801
    xm.all_reduce("sum", [loss], 1.0, None, True, "more")  # !XLA801
    xm.all_reduce(reduce_type="sum", inputs=[loss])
    xm.all_reduce(*loss)
    xm.master_print("a", "b", "c", loss)
    try:
        xm.optimizer_step()
    except TypeError:
        pass
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


def test_that_each_core_reports_is_said_where_all_of_them_do():
    text = EVALUATED.replace("SAYS", 'wandb.log({"accuracy": accuracy})')
    findings = engine.lint(Source("train.py", text)).findings
    [message] = [one.message for one in findings if one.code == "XLA427"]
    assert "each core reports the metric of its own shard" in message
