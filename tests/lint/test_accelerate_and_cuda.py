"""Accelerate programs that gather what is no tensor or step inside, and CUDA behind a TPU's branch.

All programs are invented. ``# !XLA906`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, marks_of, told

ACCELERATED = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
def fit(net, rows, tokenizer, metric):
    accelerator = Accelerator()
    adam = torch.optim.AdamW(net.parameters())
    net, adam, rows = accelerator.prepare(net, adam, rows)
    static = accelerator.distributed_type == DistributedType.XLA
"""
BRANCHES = """\
import torch
from transformers import TrainingArguments
from transformers.utils import is_torch_xla_available
if is_torch_xla_available():
    import torch_xla.runtime as xr
    import torch_xla.core.xla_model as xm
class Runner:
    def __init__(self, net, args: TrainingArguments):
        self.net, self.args = net.to(args.device), args
"""
NORMALIZED = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torchvision import transforms
from torchvision.transforms import Normalize, v2
from torchvision.transforms import functional as F
MEAN, SPREAD = (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)
def fit(net, adam, loader):
    device = torch_xla.device()
    plain = Normalize(MEAN, SPREAD)
    second = v2.Normalize(MEAN, SPREAD)
    mean = torch.tensor(MEAN, device=device).view(3, 1, 1)
    for x, y in pl.MpDeviceLoader(loader, device):
"""

#: Programs by the rules that they are about.
PROGRAMS = {
    "XLA906: losses that are numbers": f"""\
{ACCELERATED}
    for x, y in rows:
        with torch.no_grad():
            loss = net(x, labels=y).loss
        told = accelerator.gather_for_metrics(loss.item())  # !XLA906
        kept = accelerator.gather_for_metrics(loss.repeat(8))
        metric.add(told, kept)
""",
    "XLA906: texts": f"""\
{ACCELERATED}
    for x, y in rows:
        ids = net(x).logits.argmax(-1)
        told = tokenizer.batch_decode(ids)
        right = tokenizer.batch_decode(y)
        told, right = accelerator.gather_for_metrics([told, right])  # !XLA906
        ids, y = accelerator.gather_for_metrics((ids, y))
        metric.add(predictions=told, references=right)
""",
    "XLA906: lists of texts, whatever they are": f"""\
{ACCELERATED}
    names = [row["name"] for row in rows]
    every = gather_object(names)  # !XLA906
    again = accelerator.gather_for_metrics(names, use_gather_object=True)  # !XLA906
    if accelerator.distributed_type == DistributedType.MULTI_GPU:
        every = gather_object(names)
    return every, again
""",
    "XLA904: gradients that are not to be reduced yet": f"""\
{ACCELERATED}
    for n, (x, y) in enumerate(rows):
        with net.no_sync():  # !XLA904
            accelerator.backward(net(x, labels=y).loss)
        with accelerator.no_sync(net):
            accelerator.backward(net(x, labels=y).loss)
        if accelerator.distributed_type == DistributedType.MULTI_GPU:
            with net.no_sync():
                accelerator.backward(net(x, labels=y).loss)
        adam.step()
""",
    "XLA302: a step with a closure of its own": f"""\
{ACCELERATED}
    plan = torch.optim.lr_scheduler.StepLR(adam, 10)
    for x, y in rows:
        loss = net(x, labels=y).loss
        accelerator.backward(loss)
        adam.optimizer.step(lambda: loss)  # !XLA302
        adam.step()
        plan.optimizer.zero_grad()
        plan.step()
""",
    "XLA302: a Trainer's loop that steps inside": """\
import torch
from transformers import Trainer
from transformers.utils import is_torch_xla_available
if is_torch_xla_available():
    import torch_xla.core.xla_model as xm
class Bounded(Trainer):
    def _inner_training_loop(self, batch_size=None, args=None, **others):
        model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        for inputs in self.get_train_dataloader():
            bound, loss = self.training_step(model, inputs)
            if is_torch_xla_available():
                self.optimizer.optimizer.step(bound)  # !XLA302
            else:
                self.optimizer.optimizer.step(bound)
            self.optimizer.step()
            xm.mark_step()
""",
    "XLA706: behind what is done on TPUs": f"""\
{BRANCHES}
    def near(self, keys, count):
        world = 1
        if is_torch_xla_available():
            world = xr.world_size()
        votes = torch.zeros(len(keys), count).to("cuda")  # !XLA706
        return votes / world
    def of_gpus(self, keys, count):
        if is_torch_xla_available():
            return xm.mesh_reduce("votes", keys, max)
        return torch.zeros(len(keys), count).to("cuda")
    def either(self, keys, count):
        if is_torch_xla_available():
            world = xr.world_size()
        else:
            world = torch.zeros(len(keys), count).to("cuda").sum()
        return world
    def elsewhere(self, keys, count):
        return torch.zeros(len(keys), count).to("cuda")
""",
    "XLA109: deviations that are asked for zero": f"""\
{NORMALIZED}
        x = Normalize(MEAN, SPREAD)(x)  # !XLA109
        x = plain(x)  # !XLA109
        x = F.normalize(x, MEAN, SPREAD)  # !XLA109
        x = second((x - mean) / 2)
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA206: what a tokenizer gave is no settings": """\
import torch
import torch_xla
from transformers import AutoModelForCausalLM, AutoTokenizer
def show(name, prompts, settings):
    tokenizer = AutoTokenizer.from_pretrained(name)
    writer = AutoModelForCausalLM.from_pretrained(name).to(torch_xla.device())
    for prompt in prompts:
        row = tokenizer(prompt, return_tensors="pt").to(writer.place)
        print(writer.generate(**row, max_new_tokens=64))  # !XLA206
        print(writer.generate(row["input_ids"], **settings, max_new_tokens=64))
""",
    "XLA206: a Trainer's own settings": """\
from transformers import Seq2SeqTrainer
from transformers.utils import is_torch_xla_available
if is_torch_xla_available():
    import torch_xla.core.xla_model as xm
class Short(Seq2SeqTrainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None, **more):
        inputs = self._prepare_inputs(inputs)
        settings = self._gen_kwargs.copy()
        settings["max_length"] = settings.get("max_length") or 64
        ids = self.model.generate(inputs["input_ids"], **settings)  # !XLA206
        others = self.model.generate(inputs["input_ids"], num_beams=2, **more)
        return None, ids, others
""",
    "XLA101: a kernel of Kaggle that says where its TPU is": """\
import os
import torch
from accelerate import Accelerator
os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"
def fit(net, rows, log):
    accelerator = Accelerator()
    adam = torch.optim.AdamW(net.parameters())
    net, adam, rows = accelerator.prepare(net, adam, rows)
    for x, y in rows:
        loss = net(x, labels=y).loss
        accelerator.backward(loss)
        adam.step()
        accelerator.log({"loss": loss.item()})  # !XLA101
""",
}


WRITING = """\
import torch
from torch.utils.data import DistributedSampler, RandomSampler
from transformers import Trainer
from transformers.trainer_pt_utils import get_tpu_sampler, nested_detach
from transformers.utils import is_torch_xla_available
class Writing(Trainer):
    def _get_train_sampler(self):
        if is_torch_xla_available():
            return SHARED
        return RandomSampler(self.train_dataset)
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        settings = {"max_length": 64, "num_beams": 4}
        ids = self.model.generate(inputs["input_ids"], **settings)  # here
        return None, nested_detach(ids), inputs["labels"]
"""


def test_a_trainer_with_samplers_for_tpus_is_for_tpus():
    told = WRITING.replace("SHARED", "get_tpu_sampler(self.train_dataset, 8)")
    assert {"XLA109", "XLA206"} <= set(codes(told))
    assert codes(WRITING.replace("SHARED", "DistributedSampler(self.train_dataset)")) == []


def test_a_trainer_that_ends_graphs_by_its_parent_s_module_is_for_tpus():
    program = """
        import transformers
        class Told(transformers.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                loss = model(**inputs).loss
                self.seen = loss.item()  # here
                return loss
            def log(self, logs, start_time=None):
                if transformers.trainer.is_torch_xla_available():
                    transformers.trainer.END()
                super().log(logs, start_time)
    """
    assert codes(program.replace("END", "xm.mark_step")) == ["XLA101"]
    assert codes(program.replace("END", "logger.info")) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_people_write_them(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


OF_ACCELERATE = [name for name, program in PROGRAMS.items() if ACCELERATED in program]


@pytest.mark.parametrize("name", OF_ACCELERATE)
def test_programs_for_gpus_alone_are_left_alone(name):
    program = PROGRAMS[name].replace("DistributedType.XLA", "DistributedType.MULTI_GPU")
    assert codes(program) == []
