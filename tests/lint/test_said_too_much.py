"""What public programs were told wrongly, beside what looks like it and is right.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told, told_in_files

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
"""

PROGRAMS = {
    "XLA104: keys of a batch": f"""\
{XM}
def halves(batch, length):
    made = {{}}
    for key in batch:
        if key.startswith("chosen") and isinstance(batch[key], torch.Tensor):
            made[key.removeprefix("chosen_")] = batch[key][:, :length]
        elif key.lower().endswith("_mask") or key.isdigit():
            made[key] = batch[key]
        elif batch[key].sum() > 3:  # !XLA104
            made[key] = batch[key]
    return made


def train(model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        loss = model(**halves(batch, 128)).loss
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA405: whether there are several cores": f"""\
{XM}
def meet(rank, args, x):
    if rank != -1:
        x = xm.all_reduce("sum", x)
    if rank >= 0 and args.all:
        x = xm.all_reduce("sum", x)
    if 0 <= rank:
        x = xm.all_reduce("sum", x)
    if not rank == -1:
        x = xm.all_reduce("sum", x)
    if rank > -1:
        x = xm.all_reduce("sum", x)
    if rank > 0:
        x = xm.all_reduce("max", x)  # !XLA405
    if 1 <= rank:
        x = xm.all_reduce("min", x)  # !XLA405
    return x


def run(index, args):
    meet(xr.global_ordinal(), args, torch.ones(2, device=torch_xla.device()))


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
""",
    "XLA405: options of what nobody sets on TPUs": f"""\
{XM}
import torch.distributed as dist


def gathered(args, predictions):
    if args.local_rank != -1:
        parts = [predictions.clone() for _ in range(dist.get_world_size())]
        dist.all_gather(parts, predictions)
        predictions = torch.cat(parts)
    elif args.tpu:
        predictions = xm.mesh_reduce("predictions", predictions, torch.cat)
    return predictions


def run(index, args):
    gathered(args, torch.ones(2, device=torch_xla.device()))
    if xr.global_ordinal() == 0:
        xm.mesh_reduce("total", 1, sum)  # !XLA405


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
""",
    "XLA405: groups of cores": f"""\
{XM}
import torch.distributed as dist


def of_ranks(x, group, ranks):
    if xr.global_ordinal() not in ranks:
        return x
    parts = [torch.zeros_like(x) for _ in ranks]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts)


def is_outside(group):
    return group is not None and dist.get_rank() not in group


def objects(x, group=None):
    if is_outside(group):
        return x
    parts = [None] * 8
    if group is not None:
        dist.all_gather_object(parts, x, group=group)
    else:
        dist.all_gather_object(parts, x)
    return parts


def of_all(x, ranks):
    if xr.global_ordinal() not in ranks:
        return x
    return xm.all_reduce("sum", x)  # !XLA405


def from_one(x, group, src):
    if dist.get_rank(group) == src:
        dist.all_reduce(x, group=group)  # !XLA405


def run(index, args):
    x = torch.ones(2, device=torch_xla.device())
    of_ranks(x, args.group, args.ranks)
    objects(x, args.group)
    of_all(x, args.ranks)
    from_one(x, args.group, args.src)


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
""",
    "XLA405: a decision that all know": f"""\
{XM}
import torch.distributed as dist


def load(path, everywhere):
    if everywhere:
        dist.barrier()
    return torch.load(path)


def load_and_wait(path, everywhere):
    dist.barrier()
    return torch.load(path)


def run(index, args):
    device = torch_xla.device()
    everywhere = args.everywhere
    if everywhere or xr.global_ordinal() == 0:
        load(args.path, everywhere)
    if everywhere or xr.global_ordinal() == 0:
        load_and_wait(args.path, everywhere)  # !XLA405


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
""",
    "XLA406: the number of the core in settings": f"""\
{XM}
import os


def is_first(settings):
    return settings.distributed_rank == 0


def probe(folder):
    name = os.path.join(folder, "probe")
    with open(name, "w"):
        pass


def probe_all(folder):
    name = os.path.join(folder, "probe")
    with open(name, "w"):  # !XLA406
        pass


def run(index, settings):
    device = torch_xla.device()
    settings.distributed.distributed_rank = xr.global_ordinal()
    if is_first(settings.distributed):
        probe(settings.folder)
    probe_all(settings.folder)


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
""",
    "XLA114: one turn of a loop": f"""\
{XM}
import os


def train(args, model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    traced = int(os.environ.get("TRACED", -1))
    step = -1
    for epoch in range(3):
        last = 0
        for step, batch in enumerate(pl.MpDeviceLoader(loader, device)):
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            if step == traced and epoch == args.traced_epoch:
                xm.wait_device_ops()
            if args.traced == step:
                xm.wait_device_ops()
            if epoch == args.traced_epoch:
                xm.wait_device_ops()  # !XLA114
            if step == last:
                xm.wait_device_ops()  # !XLA114
            last = last + 1
""",
    "XLA709: where there are GPUs": f"""\
{XM}
import torch.nn as nn


def wrapped(model, args):
    if args.n_gpu > 1 and not getattr(model, "is_quantized", False):
        model = nn.DataParallel(model)
    if args.num_gpus >= 2:
        model = nn.DataParallel(model)
    if args.copies > 1:
        model = nn.DataParallel(model)  # !XLA709
    return model


def train(args, model, loader, optimizer):
    device = torch_xla.device()
    if args.use_tpu:
        model = wrapped(model, args).to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        model(batch).backward()
        xm.optimizer_step(optimizer)
""",
    "XLA301: what goes to the host": f"""\
{XM}
from diffusers import DDIMScheduler, UNet2DConditionModel

unet = UNet2DConditionModel.from_pretrained("small").to(torch_xla.device())
scheduler = DDIMScheduler()
to_host = lambda x: x.to("cpu").float()


def by_helper(latents, text):
    for i, t in enumerate(scheduler.timesteps):
        noise = to_host(unet(latents, t, text).sample)
        latents = scheduler.step(noise, t, latents).prev_sample
    return latents


def by_keyword(latents, text):
    for t in scheduler.timesteps:
        noise = unet(latents, t, text).sample.to(device=torch.device("cpu"))
        latents = scheduler.step(noise, t, latents).prev_sample
    return latents


def stays(latents, text):
    for t in scheduler.timesteps:  # !XLA301
        noise = unet(latents, t, text).sample.to(torch.float32)
        latents = scheduler.step(noise, t, latents).prev_sample
    return latents
""",
    "XLA101 XLA209 XLA603: two texts": f"""\
{XM}
from transformers import AutoTokenizer


def compare(model, other, name, texts):
    tokenizer = AutoTokenizer.from_pretrained(name)
    device = torch_xla.device()
    model, other = model.to(device), other.to(device)
    for text in ["def double(x):", "The sea is"]:
        ids = tokenizer(text, return_tensors="pt").to(device)
        with torch.no_grad():
            gap = (model(**ids).logits - other(**ids).logits).abs().max().item()
        print(gap)
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").to(device)  # !XLA209 !XLA603
        with torch.no_grad():
            gap = (model(**ids).logits - other(**ids).logits).abs().max().item()  # !XLA101
        print(gap)
""",
    "XLA111: once for each device": f"""\
{XM}
import gc


def once(model, batch, optimizer):
    gc.collect()
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    torch_xla.sync()


def each(model, batch, optimizer):
    gc.collect()  # !XLA111
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    torch_xla.sync()


def bench(args, model, batch, loader, optimizer):
    for device in args.devices:
        once(model.to(device), batch, optimizer)
    for batch in pl.MpDeviceLoader(loader, torch_xla.device()):
        each(model, batch, optimizer)
""",
    "XLA801: code for older releases": f"""\
{XM}
from lightning_utilities.core.imports import RequirementCache
from packaging.version import Version

from shared import _XLA_GREATER_EQUAL_2_5

_SINCE_2_1 = RequirementCache("torch_xla>=2.1")
_RECENT = Version(torch_xla.__version__) >= Version("2.5")
_OLD = Version(torch_xla.__version__) < Version("2.5")


def by_name():
    if _XLA_GREATER_EQUAL_2_5:
        return xr.global_ordinal()
    return xm.get_ordinal()


def by_requirement():
    if _SINCE_2_1:
        return xr.global_ordinal()
    else:
        return xm.get_ordinal()


def by_comparison():
    if not _RECENT:
        return xm.get_ordinal()
    return xr.global_ordinal()


def of_old():
    if _OLD:
        return xm.get_ordinal()
    return xm.get_ordinal()  # !XLA801


def of_new():
    if _XLA_GREATER_EQUAL_2_5:
        return xm.get_ordinal()  # !XLA801
    return 0


def of_other(verbose):
    if verbose:
        return xm.get_ordinal()  # !XLA801
    return 0
""",
    "XLA810: a loader of the program's own": f"""\
{XM}
class Batches:
    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __iter__(self):
        parallel = pl.ParallelLoader(self.loader, [self.device])
        return parallel.per_device_loader(self.device)


def once(loader, device):
    return pl.ParallelLoader(loader, [device]).per_device_loader(device)  # !XLA810
""",
    "XLA903: unit tests log what they like": """\
import pytest
import torch
import torch_xla
from lightning.pytorch import Trainer


@pytest.mark.parametrize("steps", [3, 5])
def test_steps(steps, model):
    Trainer(accelerator="tpu", max_steps=steps, log_every_n_steps=1).fit(model)


def main(model):
    Trainer(accelerator="tpu", log_every_n_steps=1).fit(model)  # !XLA903
""",
    "XLA432: unit tests count for themselves": f"""\
{XM}
import pytest
from torch.utils.data.distributed import DistributedSampler


def test_sampler(data):
    assert DistributedSampler(data, num_replicas=8, rank=0) is not None


def run(index, data):
    sampler = DistributedSampler(data, num_replicas=8, rank=xr.global_ordinal())  # !XLA432
    return sampler


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
""",
    "XLA312: models of JAX": """\
import jax
import optax
from transformers import FlaxAutoModelForCausalLM, HfArgumentParser, TrainingArguments


def main(args):
    model = FlaxAutoModelForCausalLM.from_pretrained(args.name)
    if args.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    return jax.devices("tpu")
""",
    "XLA731: what makes GPUs exact": """\
import os

import torch
import torch_xla

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
torch.backends.cuda.matmul.allow_tf32 = False
device = torch_xla.device()
""",
    "XLA731: what makes nothing exact": """\
import torch
import torch_xla

torch.backends.cuda.matmul.allow_tf32 = False  # !XLA731
device = torch_xla.device()
""",
    "XLA706 XLA314: unit tests choose their devices": f"""\
{XM}
import pytest


@pytest.mark.parametrize("device", [torch.device("cuda", 0), torch.device("cpu")])
def test_compiled(device):
    assert torch.compile(make()) is not None
    assert make().to(torch.device("cuda")) is not None


def helper():
    model = torch.compile(make())  # !XLA314
    return model.to(torch.device("cuda"))  # !XLA706


def test_device():
    helper().to(torch_xla.device())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


METRIC = f"""\
{XM}
import evaluate


def accuracy(model, loader):
    metric = evaluate.load("accuracy")
    device = torch_xla.device()
    model = model.to(device)
    model.eval()
    with torch.no_grad():
        for batch in pl.MpDeviceLoader(loader, device):
            best = model(**batch).logits.argmax(-1)
            metric.add_batch(predictions=best, references=batch["labels"])
    return metric.compute()
"""


def test_a_metric_of_an_evaluation_is_not_to_be_fed_now_and_then():
    told = engine.lint(Source("train.py", METRIC), engine.LintOptions()).findings
    [advice] = [one.suggestion for one in told if one.code == "XLA101"]
    assert "give it all after the loop" in advice


PROJECTS = {
    "XLA101 XLA203: a script for GPUs beside a library for all": {
        "lib/__init__.py": "from lib.xla import device, run\n",
        "lib/xla.py": f"""\
{XM}
def device():
    return torch_xla.device()


def run(fn):
    torch_xla.launch(fn)
""",
        "gpu.py": """\
import lib
import torch
from torch.utils.data import DataLoader


def main(data, model, optimizer):
    device = "cpu"
    if torch.cuda.is_available():
        device = "cuda"
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = model.to(device)
    for x in loader:
        loss = model(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
""",
        "any.py": """\
import lib
import torch
from torch.utils.data import DataLoader


def main(data, model, optimizer):
    device = lib.device()
    loader = DataLoader(data, batch_size=64, shuffle=True)  # !XLA203
    model = model.to(device)
    for x in loader:
        loss = model(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())  # !XLA101
""",
    },
    "XLA905: a library that only asks": {
        "lib.py": """\
def is_there():
    try:
        import torch_xla.core.xla_model as xm

        _ = xm.xla_device()
        return True
    except ImportError:
        return False


def number(tensor):
    if tensor.device.type == "xla":
        import torch_xla

        return torch_xla._XLAC._xla_get_tensor_id(tensor)
    return id(tensor)
""",
        "train.py": """\
from transformers import Trainer

import lib


def main(model, tokenizer, data):
    trainer = Trainer(model=model, train_dataset=data, tokenizer=tokenizer)
    trainer.train()
    print(lib.number(model.head.weight))
""",
    },
    "XLA905: a library that starts the cores": {
        "lib.py": """\
import torch_xla


def start(main):
    torch_xla.launch(main)
""",
        "train.py": """\
from transformers import Trainer

import lib


def main(index):
    trainer = Trainer(model=make(), train_dataset=data(), tokenizer=tokenizer())  # !XLA905
    trainer.train()


lib.start(main)
""",
    },
    "XLA101: a library that chooses": {
        "lib.py": """\
def device():
    try:
        import torch_xla.core.xla_model as xm

        return xm.xla_device()
    except ImportError:
        return "cpu"
""",
        "train.py": """\
import lib


def main(model, optimizer, loader):
    device = lib.device()
    model = model.to(device)
    for batch in loader:
        loss = model(batch.to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())  # !XLA101
""",
    },
    "XLA101 XLA202: what a package hands on besides": {
        "lib/__init__.py": """\
from .other import Other
from .plain import Plain

__version__ = "1"
""",
        "lib/plain.py": """\
from transformers import Trainer

from . import __version__


class Plain(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = model(**inputs).loss
        self.log({"loss": loss.item()})  # !XLA101
        return loss
""",
        "lib/other.py": """\
from transformers import Trainer


class Other(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = model(**inputs).loss
        self.log({"loss": loss.item()})
        return loss
""",
        "lib/xla.py": """\
import torch_xla

from .plain import Plain


class OnXla(Plain):
    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        torch_xla.sync()
        return loss
""",
    },
}


@pytest.mark.parametrize("name", PROJECTS)
def test_what_is_told_of_files(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = PROJECTS[name]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)


SUMS = f"""\
{XM}

def train(model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        out = model(batch)
        loss = out.nansum() / out.exp().nansum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = out.nansum()
"""


def test_a_line_is_told_a_thing_once():
    told = [item for item in found(SUMS) if item[1] == "XLA501"]
    assert told == [(13, "XLA501"), (17, "XLA501")]
