"""Trainers whose loaders, models and accelerators another file makes, and copies of the Trainer."""

from __future__ import annotations

import pytest
from model_helpers import marked as expression
from model_helpers import model_of
from rule_helpers import codes, found, marks, rows

from xladoctor.lint.model import Kind


def row_of(text, program):
    [row] = [number for number, line in enumerate(program.splitlines(), 1) if text in line]
    return row


#: A Trainer of the program that is given Accelerate's object.
GIVEN = """\
import accelerate
import torch
from accelerate import Accelerator
from omegaconf import OmegaConf

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None

from engine import Base


class Painter(Base):
    def __init__(self, net, accelerator: Accelerator, options):
        super().__init__(net, accelerator)
        self.options = options

    def fit(self, batches):
        seen = 0
        for pictures, words in batches:
            with self.accelerator.accumulate(self.net):
                loss = self.net(pictures, words)
                self.accelerator.backward(loss)
                self.optimizer.step()
            everywhere = self.accelerator.gather_for_metrics(loss).mean()
            self.accelerator.print(f"{seen}: {everywhere}")  # !XLA103
            self.accelerator.log({"loss": everywhere}, step=seen)  # !XLA101
            seen += 1
        print("all batches", seen)  # !XLA401
        OmegaConf.save(self.options, "options.yaml")  # !XLA406
        if self.accelerator.is_main_process:
            print("done")
            OmegaConf.save(self.options, "options.yaml")
"""


def test_what_accelerate_differentiates_is_on_the_device():
    asked = {"XLA101", "XLA102", "XLA103", "XLA401", "XLA406"}
    assert {mark for mark in found(GIVEN) if mark[1] in asked} == marks(GIVEN)


def test_without_xla_nothing_is_said_of_it():
    plain = GIVEN.replace("torch_xla.core.xla_model as xm", "wandb").replace("xm = None", "pass")
    assert codes(plain) == []


@pytest.mark.parametrize("made", ["engine.Logger()", "self.fetch()"])
def test_a_backward_pass_of_anything_else_says_nothing(made):
    program = GIVEN.replace(
        "self.accelerator.backward(loss)", f"tape = {made}; tape.backward(loss)"
    )
    assert not {"XLA101", "XLA103"} & set(codes(program))


BUILT = """\
import accelerate
import torch
import torch_xla.core.xla_model as xm
from engine import Painter, build_accelerator, loaders, optimizer_of


def main(options):
    accelerator: accelerate.Accelerator = build_accelerator(options)
    if accelerator.is_main_process:
        accelerate.utils.set_seed(options.seed)
    print("weights", options.size)
    net = Painter(options.size)
    adam = optimizer_of(net.parameters())
    net, adam, batches = accelerator.prepare(net, adam, loaders(options))
    for pictures, words in batches:
        adam.zero_grad()
        accelerator.backward(net(pictures, words))
        adam.step()
"""


@pytest.mark.parametrize(
    "bound", ["accelerator: accelerate.Accelerator", "accelerator", "_accelerator"]
)
def test_an_accelerator_that_another_file_builds_is_on_each_core(bound):
    program = BUILT.replace("accelerator: accelerate.Accelerator", bound)
    imports = "import accelerate\nfrom accelerate import Accelerator\n"
    program = program.replace("import accelerate\n", imports)
    if bound == "_accelerator":
        program = program.replace(" accelerator.", " _accelerator.")
    assert rows(program, "XLA401") == [row_of('print("weights"', program)]


def test_rich_prints_on_every_core_too():
    program = BUILT.replace("import torch\n", "import torch\nfrom rich import print\n", 1)
    assert "XLA401" in codes(program)


def test_a_seed_of_the_main_process_alone_makes_nothing_equal():
    assert rows(BUILT, "XLA426") == [row_of("net = Painter(", BUILT)]


@pytest.mark.parametrize(
    "seeded",
    [
        "    accelerate.utils.set_seed(options.seed)\n",
        "    torch.manual_seed(options.seed)\n",
        "    if options.seed is not None:\n        accelerate.utils.set_seed(options.seed)\n",
    ],
)
def test_a_seed_of_all_processes_does(seeded):
    alone = "    if accelerator.is_main_process:\n        accelerate.utils.set_seed(options.seed)\n"
    assert rows(BUILT.replace(alone, seeded), "XLA426") == []


#: A copy of the Trainer's loop, as people made them in 2020.
COPY = """\
import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from settings import is_tpu
from torch.utils.data import DataLoader
from tqdm import tqdm


class Trainer:
    def __init__(self, model, args, rows):
        self.args, self.rows = args, rows
        self.model = model.to(args.device)

    def get_train_dataloader(self):
        loader = DataLoader(self.rows, batch_size=8, drop_last=True)
        if is_tpu():
            batches = pl.ParallelLoader(loader, [self.args.device])
            loader = batches.per_device_loader(self.args.device)
        return loader

    def train(self, path):
        loader = self.get_train_dataloader()
        steps = len(loader)
        adam = torch.optim.Adam(self.model.parameters())
        adam.load_state_dict(torch.load(path, map_location=self.args.device))
        for epoch in range(3):
            for inputs in tqdm(loader, disable=True):
                self._training_step(self.model, inputs)
                xm.optimizer_step(adam)
                adam.zero_grad()
        if self.args.local_rank != -1:
            dist.all_reduce(steps)
        else:
            xm.rendezvous("end")

    def _training_step(self, model, inputs):
        lengths = inputs["mask"].sum(1)
        hidden = model.get_hidden_of(inputs["ids"])
        for i in range(8):
            kept = int(lengths[i] * 0.9)
            places = torch.randint(lengths[i], (kept,))
            mask = torch.ones(128).to(self.args.device)
            for place in places:
                mask[place] = 0
        model(inputs["ids"], hidden * mask).sum().backward()
        print(hidden.norm().item())
"""


def test_an_iterator_that_a_method_gives_back_is_empty_in_the_second_epoch():
    assert rows(COPY, "XLA415") == [row_of("per_device_loader(", COPY)]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        # a new one for each epoch
        ("in tqdm(loader, disable=True)", "in tqdm(self.get_train_dataloader(), disable=True)"),
        # a device loader starts anew
        (
            "batches.per_device_loader(self.args.device)",
            "pl.MpDeviceLoader(loader, self.args.device)",
        ),
        # nothing is taken out of it
        ("in tqdm(loader, disable=True)", "in range(len(loader))"),
    ],
)
def test_others_are_not(written, instead):
    assert written in COPY
    assert rows(COPY.replace(written, instead), "XLA415") == []


def test_the_device_of_its_loader_is_no_place_to_load_to():
    assert rows(COPY, "XLA720") == [row_of("map_location=", COPY)]
    assert rows(COPY.replace("map_location=self.args.device", 'map_location="cpu"'), "XLA720") == []
    other = COPY.replace("map_location=self.args.device", "map_location=self.args.host")
    assert rows(other, "XLA720") == []


@pytest.mark.parametrize(
    "asked",
    [
        "self.args.local_rank != -1", "self.args.local_rank == -1", "self.args.local_rank >= 0",
        "self.args.local_rank > -1", "-1 != self.args.local_rank", "0 <= self.args.local_rank",
        "self.args.local_rank < 0",
    ],
)  # fmt: skip
def test_all_cores_know_alike_whether_they_were_launched(asked):
    assert rows(COPY.replace("self.args.local_rank != -1", asked), "XLA405") == []


@pytest.mark.parametrize("asked", ["self.args.local_rank != 0", "self.args.local_rank == 0"])
def test_each_answers_for_itself_which_it_is(asked):
    assert rows(COPY.replace("self.args.local_rank != -1", asked), "XLA405")


def test_what_a_step_draws_place_by_place():
    assert rows(COPY, "XLA208") == [row_of("mask[place]", COPY)]
    assert rows(COPY, "XLA109") == [row_of("torch.randint", COPY)]  # its bound is read
    assert rows(COPY, "XLA101") == [row_of("hidden.norm()", COPY)]


DRAWN = """\
import random

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl

CORNERS = [0, 7, 56, 63]


def train(net, loader, adam, host):
    device = torch_xla.device()
    net.to(device)
    fixed = torch.randint(64, (4,))
    for x, y in pl.MpDeviceLoader(loader, device):
        keep = torch.ones(64, device=device)
        for i in {drawn}:
            {written}
        (net(x * keep) - y).sum().backward()
        adam.step()
"""


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.randint(64, (4,))", "torch.randperm(64)[:4]", "torch.randperm(64).tolist()",
        "np.random.choice(64, 4)", "random.sample(range(64), 4)",
        "sorted(random.sample(range(64), 4))", "np.random.permutation(64)[:4]",
    ],
)  # fmt: skip
def test_places_that_a_loop_goes_over_are_drawn(drawn):
    program = DRAWN.format(drawn=drawn, written="keep[i] = 0")
    assert rows(program, "XLA208") == [row_of("keep[i]", program)]


@pytest.mark.parametrize(
    ("drawn", "written"),
    [
        ("range(4)", "keep[i] = 0"),
        ("CORNERS", "keep[i] = 0"),
        ("fixed", "keep[i] = 0"),  # drawn once
        ("torch.randint(64, (4,))", "host[0] = i"),
        ("random.sample(range(64), 4)", "CORNERS[i] = 0"),
    ],
)
def test_others_are_the_same_each_time(drawn, written):
    assert rows(DRAWN.format(drawn=drawn, written=written), "XLA208") == []


def test_a_bound_of_the_host_is_not_read():
    program = DRAWN.format(drawn="torch.randint(len(CORNERS), (4,))", written="pass")
    assert rows(program, "XLA109") == []


VALUES = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def chosen(batch, least):
    if least is None:
        return None
    return {key: rows * least for key, rows in batch.items()}


def validate(net, loader, least):
    device = torch_xla.device()
    net.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        lengths = batch["mask"].sum(1)
        torch.randint(lengths[0], (3,))  # <- drawn
        torch.arange(lengths.max())  # <- counted
        torch.arange(lengths.max(), device=device)  # <- there
        net.get_logits_from(batch["ids"])  # <- logits
        net.get_input_embeddings()  # <- embeddings
        some = chosen(batch, least)
        if some is None:
            continue
        some["ids"]  # <- ids
        more = chosen(batch, least)
        if more is not None:
            more["ids"]  # <- more
"""


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        ("drawn", Kind.CPU_TENSOR), ("counted", Kind.CPU_TENSOR), ("there", Kind.DEVICE_TENSOR),
        ("logits", Kind.DEVICE_TENSOR), ("ids", Kind.DEVICE_TENSOR), ("more", Kind.DEVICE_TENSOR),
    ],
)  # fmt: skip
def test_values(mark, kind):
    model = model_of(VALUES)
    assert model.value(expression(model, mark)).kind is kind


def test_a_module_that_a_model_gives_is_no_tensor():
    model = model_of(VALUES)
    assert not model.value(expression(model, "embeddings")).is_device_tensor


WRITES = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from transformers import Seq2SeqTrainer


class Writer(Seq2SeqTrainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        settings = self._settings.copy()
        written = self.model.generate(inputs["input_ids"], **settings)
        return None, written, inputs["labels"]


def write(model, batches, settings):
    settings = dict(settings)
    settings["num_beams"] = 4
    device = xm.xla_device()
    model.to(device)
    for batch in pl.MpDeviceLoader(batches, device):
        with torch.no_grad():
            right = model(batch["input_ids"])
            model.generate(batch["input_ids"], **settings)
"""


def test_generate_of_a_trainers_model_and_by_what_is_put_into_its_settings():
    assert rows(WRITES, "XLA109") == [11, 23]


def test_generate_of_something_else():
    other = WRITES.replace("(Seq2SeqTrainer)", "").replace('settings["num_beams"]', "settings[4]")
    assert rows(other, "XLA109") == []


TWICE = """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def score(net, rows):
    return xm.mesh_reduce("score", net(rows).sum().item(), sum)


def train(index, net, rows, every):
    for epoch in range(9):
        for step, batch in enumerate(rows):
            net(batch).sum().backward()
            if step % every == 0 and xm.is_master_ordinal():
                score(net, rows)  # the first
        if xm.is_master_ordinal():
            score(net, rows)  # the second
    score(net, rows)


if __name__ == "__main__":
    xmp.spawn(train, args=(1, 2, 3))
"""


def test_each_place_where_the_master_alone_leads_to_a_meeting():
    told = set(rows(TWICE, "XLA405"))
    assert told == {row_of("# the first", TWICE), row_of("# the second", TWICE)}


STOPS = """\
import numpy as np
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer, TrainerCallback


class Watcher(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs["loss"] > 10 or state.log_history[-1]["loss"] > 3:
            control.should_training_stop = True

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if metrics["eval_loss"] > 10:
            control.should_training_stop = True
        if state.global_step > 100:
            control.should_epoch_stop = True

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step > 5:
            control.should_training_stop = True  # !XLA420


class Careful(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = outputs.loss
        if torch.isnan(loss):
            self.control.should_training_stop = True  # !XLA420
        value = loss.item()
        if value > 100.0:
            self.control.should_epoch_stop = True  # !XLA420
        if value > 7.0:
            self.control.should_log = True
        everywhere = xm.mesh_reduce("loss", value, np.mean)
        if everywhere > 100.0:
            self.control.should_training_stop = True
        return (loss, outputs) if return_outputs else loss
"""


def test_a_core_that_tells_the_trainer_to_stop_by_a_number_of_its_own():
    assert {mark for mark in found(STOPS) if mark[1] == "XLA420"} == marks(STOPS)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("import torch_xla.core.xla_model as xm", "import helpers as xm"),
        ("(Trainer):", "(Engine):"),
    ],
)
def test_others_may_stop_when_they_like(written, instead):
    program = STOPS.replace(written, instead)
    own = {row_of("should_epoch_stop = True  #", STOPS), row_of("isnan", STOPS) + 1}
    assert not own & set(rows(program, "XLA420"))


LAUNCHED = """\
import accelerate
import torch_xla.core.xla_model as xm
from accelerate.utils import set_seed
from transformers import Trainer


class Mine(Trainer):
    def training_step(self, model, inputs, *rest):
        loss = self.compute_loss(model, inputs)
        self.accelerator.backward(loss)
        return loss.detach()


def main():
    print("begin", flush=True)


def _mp_fn(index):
    main()
"""


def test_an_accelerator_of_the_trainer_starts_nothing_else():
    assert rows(LAUNCHED, "XLA401") == [row_of('print("begin", flush=True)', LAUNCHED)]
