"""Trainers of several files: names of a star, what callbacks and own methods are given."""

from __future__ import annotations

import importlib

import pytest
from rule_helpers import codes, found, marks

from xladoctor.lint.model.dotted import STARS


def told(program, rules):
    """What these rules find in a program."""
    return {(row, code) for row, code in found(program) if code in rules}


STARRED = """
from transformers.trainer import *


class Ranker(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        out = model(**inputs)
        self.seen = out.loss.item()  # !XLA101
        return (out.loss, out) if return_outputs else out.loss

    def evaluation_loop(self, dataloader, description, **settings):
        model, kept = self._wrap_model(self.model, training=False), None
        model.eval()
        for batch in dataloader:
            loss, logits, labels = self.prediction_step(model, batch, False)
            xm.mark_step()
            kept = logits if kept is None else nested_concat(kept, logits)  # !XLA206
        return nested_numpify(kept)
"""


def test_what_a_star_import_of_the_trainer_gives_is_known():
    assert told(STARRED, {"XLA101", "XLA206"}) == marks(STARRED)


@pytest.mark.parametrize(
    "written",
    [
        "from .trainer import *",
        "from mylib.trainer import *",
        "from transformers.trainer import *\nfrom mine import Trainer, nested_concat",
        "from transformers.trainer import *\n\n\nclass Trainer:\n    pass",
    ],
)
def test_names_that_another_module_may_have_are_not_believed(written):
    # With ``inputs`` in its loss it would be a Trainer of transformers by that.
    other = STARRED.replace("inputs", "rows")
    assert "XLA101" in codes(other)
    assert "XLA101" not in codes(other.replace("from transformers.trainer import *", written))


@pytest.mark.parametrize("module", STARS)
def test_where_names_of_a_star_live(module):
    gone = {"is_torch_tpu_available"}
    for home, names in STARS[module].items():
        lives = importlib.import_module(home)
        assert [name for name in names if not hasattr(lives, name)] in ([], sorted(gone))


CALLBACKS = """
import torch
import torch.nn as nn
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import AutoModel, Trainer, TrainerCallback


class Joint(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AutoModel.from_pretrained("tiny")
        self.mix = nn.Parameter(torch.zeros(2))
        self.out = nn.Linear(8, 2)
        self.kinds = 3

    def forward(self, input_ids, labels):
        return self.out(self.encoder(input_ids)[0])


class Watch(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        weights = model.mix.detach().cpu().numpy()  # !XLA101
        if model.kinds > 2:
            weights = None
        grad = model.out.weight.grad
        if grad is not None and grad.abs().max() > 9:  # !XLA104
            self.large = True

    def on_train_end(self, args, state, control, model=None, **kwargs):
        torch.save(model.state_dict(), args.output_dir + "/last.pt")  # !XLA721


def main(index):
    net = Joint()
    torch.save(net.state_dict(), "new.pt")
    Trainer(model=net, callbacks=[Watch()]).train()
    torch.save(net.state_dict(), "trained.pt")  # !XLA721
    net.cpu()
    torch.save(net.state_dict(), "on_the_host.pt")


if __name__ == "__main__":
    xmp.spawn(main)
"""


def test_callbacks_are_given_the_model_that_the_program_makes():
    assert told(CALLBACKS, {"XLA101", "XLA104", "XLA721"}) == marks(CALLBACKS)


OWN_METHODS = """
import torch
import torch_xla
from transformers import BertModel, BertPreTrainedModel


class Spans(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)

    def forward(self, input_ids=None, borders=None, limits=None, style=None):
        hidden = self.bert(input_ids)[0]
        parts = self._cut(hidden, borders)
        widths = self._widths(given=limits)
        return self._name(style), parts, widths

    def _cut(self, hidden, borders):
        return hidden[0, borders[0].nonzero()], self._twice(borders)  # !XLA201

    def _twice(self, borders):
        return self._cut(borders.sum(0), borders)

    def _widths(self, given):
        return given.sum(-1).tolist()  # !XLA101

    def _name(self, style):
        if style:
            return style.split("-")
        return [len(style)]
"""


def test_optional_parameters_that_own_methods_work_on_are_tensors():
    assert told(OWN_METHODS, {"XLA101", "XLA104", "XLA201"}) == marks(OWN_METHODS)


PADDED = """
import torch
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader


def collate(rows):
    width = {width}
    kept = []
    for row in rows:
        missing = width - len(row["ids"])
        kept.append(row["ids"] + [0] * missing)
    return torch.tensor(kept)


def main(index, data):
    return DataLoader(data, batch_size=8, collate_fn=collate, drop_last=True)


xmp.spawn(main, args=([],))
"""


@pytest.mark.parametrize(
    ("width", "is_told"),
    [
        ('max(len(row["ids"]) for row in rows)', True),
        ('min(max(len(row["ids"]) for row in rows), 512)', True),
        ("128", False),
        ('len(rows[0]["fixed"])', False),
    ],
)
def test_rows_that_get_what_is_missing_to_the_longest(width, is_told):
    code = PADDED.replace("{width}", width)
    assert ("XLA209" in codes(code)) is is_told


CUT = """
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Own(Trainer):
{lines}
"""


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (
            [
                "def training_step(self, model, inputs, count=None):",
                "    loss = self.compute_loss(model, inputs)",
                "    xm.mark_step()",
                "    self.accelerator.backward(loss)",
                "    return loss.detach()",
            ],
            True,
        ),
        (
            [
                "def compute_loss(self, model, inputs, return_outputs=False):",
                "    out = model(**inputs)",
                "    return (out.loss, out) if return_outputs else out.loss",
                "",
                "def training_step(self, model, inputs, count=None):",
                "    loss = self.compute_loss(model, inputs)",
                "    xm.mark_step()",
                "    loss.backward()",
                "    return loss.detach()",
            ],
            True,
        ),
        (
            [
                "def training_step(self, model, inputs, count=None):",
                "    loss = self.compute_loss(model, inputs)",
                "    self.accelerator.backward(loss)",
                "    xm.mark_step()",
                "    return loss.detach()",
            ],
            False,
        ),
    ],
)
def test_a_graph_that_ends_before_the_backward_pass_of_a_trainer(lines, is_told):
    code = CUT.replace("{lines}", "\n".join(f"    {line}".rstrip() for line in lines))
    assert ("XLA319" in codes(code)) is is_told


DRAWN = """
import torch.nn as nn
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import BertConfig, BertModel, BertPreTrainedModel, Trainer, set_seed


class Tagger(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.out = nn.Linear(8, 2)


def main(index):
    model = Tagger(BertConfig())
    Trainer(model=model).train()


if __name__ == "__main__":
    xmp.spawn(main)
"""


def test_a_model_of_a_configuration_is_drawn_by_each_core():
    assert "XLA426" in codes(DRAWN)
    seeded = DRAWN.replace("    model = Tagger(", "    set_seed(3)\n    model = Tagger(")
    assert "XLA426" not in codes(seeded)


PAIRED = """
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def main(index, data):
    if not xm.is_master_ordinal():
        xm.rendezvous("cache")
    rows = data.load()
    if xm.is_master_ordinal():
        xm.rendezvous("cache")
        rows = rows[:3]
    if xm.is_master_ordinal():
        xm.rendezvous("end")  # !XLA405


xmp.spawn(main, args=(None,))
"""


def test_a_pair_of_meetings_beside_one_that_the_master_is_alone_at():
    assert told(PAIRED, {"XLA405"}) == marks(PAIRED)


OLD = """
import torch_xla
from {package} import {name}

trainer = {name}(model=model, args=settings, tokenizer=words)
"""


@pytest.mark.parametrize(
    ("package", "name", "is_told"),
    [
        ("transformers", "Trainer", True),
        ("transformers", "Seq2SeqTrainer", True),
        ("sentence_transformers", "SentenceTransformerTrainer", False),
        ("optimum.neuron", "NeuronTrainer", False),
    ],
)
def test_a_tokenizer_that_the_trainer_takes_no_more(package, name, is_told):
    code = OLD.replace("{package}", package).replace("{name}", name)
    assert ("XLA905" in codes(code)) is is_told


def test_a_model_of_the_program_that_is_loaded_is_not_drawn():
    loaded = DRAWN.replace("Tagger(BertConfig())", 'Tagger.from_pretrained("tagger")')
    assert "XLA426" not in codes(loaded)
