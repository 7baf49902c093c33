"""Batches whose tensors are moved one by one, and what Trainers and Accelerate programs do to them.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from model_helpers import marked, model_of
from rule_helpers import marks_of, told

from xladoctor.lint.model import Kind

LOADED = """\
import torch
import torch_xla
from torch.utils.data import DataLoader
def look(net, data, place):
    place = torch_xla.device()
    net.to(place)
    for batch in DataLoader(data, batch_size=8):
"""

#: How people move what a batch holds, place by place.
MOVES = (
    "for name, row in batch.items():\n            batch[name] = row.to(place)",
    "for name in batch:\n            batch[name] = batch[name].to(place)",
    "for name in batch.keys():\n            batch[name] = batch[name].to(place)",
    "for name, row in list(batch.items()):\n            batch[name] = row.to(place)",
    (
        "for name, row in batch.items():\n            if torch.is_tensor(row):\n"
        "                batch[name] = row.to(place)"
    ),
    (
        "for name, row in batch.items():\n            if isinstance(row, torch.Tensor):\n"
        "                batch[name] = row.to(place, non_blocking=True)"
    ),
    (
        "for name, row in batch.items():\n            if row is not None:\n"
        "                batch[name] = row.long().to(place)"
    ),
    "for name in list(batch):\n            batch[name] = batch[name].to(place)",
)


@pytest.mark.parametrize("move", MOVES)
def test_a_batch_is_on_the_device_behind_the_loop_that_moves_it(move):
    model = model_of(f"{LOADED}        {move}\n        batch  # <- moved\n")
    assert model.value(marked(model, "moved")).holds_device_tensor


@pytest.mark.parametrize(
    "move",
    [
        # Some of it stays, and nobody says what is asked for later.
        (
            "for name, row in batch.items():\n            if name != 'id':\n"
            "                batch[name] = row.to(place)"
        ),
        "for name, row in batch.items():\n            other[name] = row.to(place)",
        "for name, row in batch.items():\n            row = row.to(place)",
        "for place_of in range(len(batch)):\n            batch[place_of] = net(batch[place_of])",
    ],
)
def test_a_batch_that_is_moved_in_part_stays_what_it_was(move):
    model = model_of(f"{LOADED}        {move}\n        batch  # <- moved\n")
    assert not model.value(marked(model, "moved")).holds_device_tensor


def test_parts_of_a_list_are_moved_by_their_places():
    program = """
        import torch
        import torch_xla
        def move(first, second):
            rows = [torch.ones(2), torch.zeros(2)]
            for place, row in enumerate(rows):
                rows[place] = row.to(torch_xla.device())
            rows  # <- moved
            for place in range(len(rows)):
                rows[place] = rows[place].cpu()
            rows  # <- back
    """
    model = model_of(program)
    assert model.value(marked(model, "moved")).holds_device_tensor
    assert not model.value(marked(model, "back")).holds_device_tensor


def test_numbers_that_replace_tensors_are_numbers():
    program = """
        import torch
        import torch_xla
        def told(net, x):
            net.to(torch_xla.device())
            parts = {"one": net(x.to(torch_xla.device()))}
            for name, part in parts.items():
                parts[name] = part.item()
            parts  # <- numbers
    """
    model = model_of(program)
    value = model.value(marked(model, "numbers"))
    assert value.kind is Kind.CONTAINER
    assert not value.holds_device_tensor


TRAINER = """\
import torch
from transformers.trainer_pt_utils import nested_concat, nested_detach, nested_numpify
from transformers.utils import is_torch_xla_available
from torch.utils.data import DataLoader
if is_torch_xla_available():
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl
class Trainer:
    def __init__(self, model, args, data):
        self.args = args
        self.data = data
        self.model = model.to(args.device)
        self.adam = torch.optim.AdamW(self.model.parameters())
    def get_train_dataloader(self):
        return DataLoader(self.data, batch_size=8, drop_last=True)
    def _prepare_inputs(self, inputs):
        for name, row in inputs.items():
            if isinstance(row, torch.Tensor):
                inputs[name] = row.to(self.args.device)
        return inputs
    def train(self):
        loader = self.get_train_dataloader()
        place = self.args.device
        for inputs in pl.ParallelLoader(loader, [place]).per_device_loader(place):
            inputs = self._prepare_inputs(inputs)
            self.model(**inputs).loss.backward()
            xm.optimizer_step(self.adam)
"""

#: Programs by the rules that they are about.
PROGRAMS = {
    "XLA603 XLA301: an index that a plain loader fills": f"""\
{TRAINER}
    def fill(self):
        for rows in self.get_train_dataloader():  # !XLA301
            rows = self._prepare_inputs(rows)  # !XLA603
            self.model.add_to_index(rows)
""",
    "XLA206: results of an evaluation, of which the labels stay on the host": f"""\
{TRAINER}
    def compare(self, loader: DataLoader):
        kept = seen = labels = None
        for rows in loader:
            label = rows.pop("labels")
            rows = self._prepare_inputs(rows)
            scores, vectors = self.model.compare(rows)
            kept = scores if kept is None else nested_concat(kept, scores)  # !XLA206
            seen = vectors if seen is None else nested_concat(  # !XLA206
                seen, nested_detach(vectors), padding_index=-100
            )
            labels = label if labels is None else nested_concat(labels, label)
            xm.mark_step()
        return kept, seen, labels
""",
    "XLA206: parts of the batch that only some settings keep, as they are and moved": f"""\
{TRAINER}
    def compare(self, loader: DataLoader):
        kept = seen = labels = None
        for rows in loader:
            label = rows["labels"] if self.args.labelled else None
            place = self._place(rows["place"]) if self.args.placed else None
            scores = self.model(**self._prepare_inputs(rows)).logits
            kept = scores if kept is None else nested_concat(kept, scores)  # !XLA206
            labels = label if labels is None else nested_concat(labels, label)
            seen = place if seen is None else nested_concat(seen, place)  # !XLA206
        return kept, seen, labels
    def _place(self, rows):
        return send_to_device(rows, self.args.device)
""",
    "XLA206: arrays that the host joins": f"""\
{TRAINER}
    def compare(self, loader: DataLoader):
        kept = None
        for rows in loader:
            rows = self._prepare_inputs(rows)
            scores = nested_numpify(self.model(**rows).logits)
            kept = scores if kept is None else nested_concat(kept, scores)
        return kept
""",
    "XLA905: what the arguments of transformers lost": f"""\
from transformers import TrainerState, TrainingArguments
{TRAINER}
    def report(self):
        if self.args.evaluation_strategy != "no":  # !XLA905
            return self.args.eval_strategy
        return self.args.tpu_metrics_debug  # !XLA905
""",
    "XLA905: a copy of the arguments has what it had": f"""\
from settings import TrainingArguments
from transformers import TrainerState
{TRAINER}
    def report(self, args: TrainingArguments):
        return self.args.tpu_metrics_debug
""",
    "XLA604: what the constructor was given is put into a tensor in each step": """\
import torch
from transformers import Trainer
import torch_xla.core.xla_model as xm
class Prompted(Trainer):
    def __init__(self, *args, prompt, **others):
        super().__init__(*args, **others)
        self.prompt = prompt
        self.bounds = {}
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        def before(ids):
            row = torch.tensor(self.prompt["input_ids"])
            rows = row.repeat(ids.shape[0], 1).to(self.args.device)  # !XLA604
            return torch.cat([rows, ids], 1)
        self.bounds["low"] = [min(len(inputs), 4)]
        low = torch.tensor(self.bounds["low"]).to(self.args.device)
        return model(before(inputs["input_ids"])).loss + low.sum()
""",
    "XLA102: parts of a loss that comes out of a dictionary": """\
from transformers import Trainer
from transformers.utils import is_torch_xla_available
if is_torch_xla_available():
    import torch_xla.core.xla_model as xm
class Taught(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        losses = self.objective.compare(model, self.teacher, inputs)
        loss = losses.pop("loss")
        self.parts = {name: float(part) for name, part in losses.items()}  # !XLA102
        return (loss, losses) if return_outputs else loss
    def weigh(self, settings):
        losses = self.objective.weights(settings)
        loss = losses.pop("loss")
        self.weights = {name: float(part) for name, part in losses.items()}
        return loss
    def count(self, model, inputs):
        numbers = self.objective.count(inputs)
        self.number = float(numbers["rows"])
""",
    "XLA206: joins of the Trainer's that a module of the program hands on": f"""\
from compat import nested_concat, nested_numpify
{TRAINER.replace("nested_concat, nested_detach, nested_numpify", "find_batch_size")}
    def compare(self, loader: DataLoader):
        kept = every = None
        for rows in loader:
            rows = self._prepare_inputs(rows)
            scores = self.model.compare(rows)
            kept = scores if kept is None else nested_concat(kept, scores)  # !XLA206
            told = nested_numpify(scores)
            every = told if every is None else nested_concat(every, told)
        return kept, every
""",
    "XLA101: what is looked at in the first steps is rare": """\
import torch
from transformers import Trainer
import torch_xla.core.xla_model as xm
class Shown(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        if self.state.global_step < 3:
            ids = inputs["input_ids"][0].tolist()
        if self.state.epoch < 3:
            ids = inputs["input_ids"][0].tolist()  # !XLA101
        return super().training_step(model, inputs, num_items_in_batch)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_people_write_them(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)
