"""Programs around the Trainer of transformers: the model it runs, what it hands on, its loops."""

import pathlib

import pytest
from rule_helpers import found, marked, marks, rows

from xladoctor.lint import engine, run
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.sources import Source


def told(folder: pathlib.Path, **files: str) -> dict[str, set[tuple[int, str]]]:
    """(row, code) of each file of a program, by the file's name."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    results = run.lint_files(sorted(folder.glob("*.py")), run.Plan(LintOptions()), jobs=1)
    return {
        pathlib.Path(item.filename).stem: {
            (each.locations[0].row, each.code)
            for each in (item.result.findings if item.result is not None else ())
        }
        for item in results
    }


TAGGER = """
import torch
import torch.nn.functional as F
from transformers import BertModel, BertPreTrainedModel

class Tagger(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.head = torch.nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        states = self.bert(input_ids, attention_mask=attention_mask)[0]
        logits = self.head(states)
        kept = attention_mask.view(-1) == 1
        loss = F.cross_entropy(logits.flatten(0, 1)[kept], labels.view(-1)[kept])  # !XLA202
        self.last_loss = loss.item()  # !XLA101
        return loss, logits
"""
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 2)

    def forward(self, pixels=None, labels=None):
        logits = self.head(pixels)
        if logits.isnan().any():  # !XLA104
            raise ValueError
        return torch.nn.functional.cross_entropy(logits, labels), logits
"""
RUN = """
{imports}
from transformers import Trainer, TrainingArguments
from models import {name}

def main():
    model = {made}
    trainer = {trainer}
    trainer.train()
"""
XLA = "import torch_xla.core.xla_model as xm"


@pytest.mark.parametrize(
    ("models", "name", "made", "trainer"),
    [
        (TAGGER, "Tagger", "Tagger.from_pretrained('base')", "Trainer(model=model, args=args)"),
        (TAGGER, "Tagger", "Tagger(config)", "Trainer(model, args, train_dataset=data)"),
        (TAGGER, "Tagger", "Tagger._from_config(config)", "Trainer(args=args, model=model)"),
        (NET, "Net", "Net()", "Trainer(model=model, args=args)"),
    ],
)
def test_the_model_that_a_trainer_is_given_runs_on_the_device(
    tmp_path, models, name, made, trainer
):
    main = RUN.format(imports=XLA, name=name, made=made, trainer=trainer)
    assert marks(models) <= told(tmp_path, models=models, run=main)["models"]


def test_a_trainer_of_the_program_runs_its_model_too(tmp_path):
    main = """
import torch_xla.core.xla_model as xm
from transformers import Seq2SeqTrainer
from models import Net

class Weighted(Seq2SeqTrainer):
    def log(self, logs):
        super().log(logs)

trainer = Weighted(model=Net(), args=args)
trainer.train()
"""
    assert marks(NET) <= told(tmp_path, models=NET, run=main)["models"]


def test_a_trainer_for_another_device_says_nothing(tmp_path):
    main = RUN.format(imports="", name="Net", made="Net()", trainer="Trainer(model=model)")
    assert told(tmp_path, models=NET, run=main) == {"models": set(), "run": set()}


def test_a_model_that_no_trainer_is_given_is_not_believed(tmp_path):
    main = RUN.format(imports=XLA, name="Net", made="other()", trainer="Trainer(model=model)")
    assert not told(tmp_path, models=NET, run=main)["models"]


def test_weights_that_are_loaded_are_not_drawn_by_each_core(tmp_path):
    main = """
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import Trainer
from models import Tagger

def work(index):
    Trainer(model=Tagger.from_pretrained("base"), args=args).train()

xmp.spawn(work)
"""
    both = told(tmp_path, models=TAGGER, run=main)
    assert not [row for part in both.values() for row, code in part if code == "XLA426"]


LOOP = """
import torch_xla.core.xla_model as xm
from models import {name}

def train(loader, config):
    device = xm.xla_device()
    model = {name}({given}).to(device)
    for batch in loader:
        batch = {batch}
        loss = model(**batch)[0]
        loss.backward()
        xm.optimizer_step(optimizer)
"""


@pytest.mark.parametrize(
    "batch",
    [
        "{key: value.to(device) for key, value in batch.items()}",
        "batch.to(device)",
        "dict((key, value.to(device)) for key, value in batch.items())",
    ],
)
def test_a_batch_gives_the_optional_parameters_of_forward(tmp_path, batch):
    main = LOOP.format(name="Net", given="", batch=batch)
    assert marks(NET) <= told(tmp_path, models=NET, run=main)["models"]


def test_what_a_batch_on_the_host_gives_is_on_the_host(tmp_path):
    main = LOOP.format(name="Net", given="", batch="{k: v.cpu() for k, v in batch.items()}")
    models = NET.replace("logits.isnan()", "labels.isnan()")
    assert not told(tmp_path, models=models, run=main)["models"] & marks(models)


def test_settings_of_forward_are_no_tensors(tmp_path):
    models = NET.replace("labels=None)", "labels=None, use_mean=None)").replace(
        "logits.isnan().any()", "use_mean"
    )
    main = LOOP.format(name="Net", given="", batch="{k: v.to(device) for k, v in batch.items()}")
    assert not told(tmp_path, models=models, run=main)["models"]


GIVEN = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer

def best(logits, labels):
    ids = logits.argmax(-1)
    if (ids == 0).all():  # !XLA104
        print("nothing but padding")
    return ids

def weighted(outputs, labels, num_items_in_batch=None):
    loss = torch.nn.functional.cross_entropy(outputs, labels)
    history.append(loss.item())  # !XLA101
    return loss

trainer = Trainer(
    model, args, preprocess_logits_for_metrics=best, compute_loss_func=weighted,
    compute_metrics=scores,
)
"""


def test_functions_that_a_trainer_calls_for_each_batch():
    assert marks(GIVEN) <= set(found(GIVEN))


def test_metrics_are_computed_of_arrays():
    program = GIVEN.replace("compute_metrics=scores", "compute_metrics=best").replace(
        "preprocess_logits_for_metrics=best, compute_loss_func=weighted,", ""
    )
    assert not marks(GIVEN) & set(found(program))


EVALUATION = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
from transformers.trainer_pt_utils import nested_concat, nested_numpify

class Scored(Trainer):
    def evaluation_loop(self, dataloader, description, **settings):
        {model}
        model.eval()
        losses, preds, seen = None, None, None
        for step, batch in enumerate(dataloader):
            {step}
            if seen is None:
                seen = labels.detach()
            else:
                seen = torch.cat((seen, labels.detach()))  # !XLA206
            preds = logits if preds is None else nested_concat(preds, logits)  # !XLA206
            if step == 0:
                losses = loss
            else:
                losses = torch.cat([losses, loss])  # !XLA206
        return nested_numpify(preds), seen.cpu()
"""
STEPS = {
    "prediction_step": "loss, logits, labels = self.prediction_step(model, batch, False)",
    "super": "loss, logits, labels = super().prediction_step(model, batch, False)",
    "prepared": """batch = self._prepare_inputs(batch)
            with torch.no_grad():
                out = model(**batch)
            loss, logits = out.loss.repeat(8), self.accelerator.gather_for_metrics(out.logits)
            labels = self.gather_function(batch["labels"])""",
    "model": """with torch.no_grad():
                loss, logits = self.model(**batch)
            labels = self._prepare_input(batch["labels"])""",
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("model", ["model = self.model", "model = self._wrap_model(self.model)"])
def test_what_an_evaluation_of_a_trainer_keeps_grows(model, step):
    program = EVALUATION.format(model=model, step=step)
    assert marks(program) <= set(found(program))


def test_what_is_kept_on_the_host_does_not_grow_on_the_device():
    step = (
        STEPS["prediction_step"]
        + """
            loss, logits, labels = loss.cpu(), logits.cpu(), labels.cpu()"""
    )
    assert not rows(EVALUATION.format(model="model = self.model", step=step), "XLA206")


def test_what_begins_anew_in_each_turn_does_not_grow():
    program = """
import torch
import torch_xla.core.xla_model as xm

def train(model, loader, optimizer):
    device = xm.xla_device()
    for batch in loader:
        batch = batch.to(device)
        kept = None
        for index in range(4):
            if kept is None:
                kept = model(batch)
            else:
                kept = torch.cat([kept, model(batch)])
        rows = batch
        for index in range(4):
            if index == 0:
                rows = model(batch)
            else:
                rows = torch.cat([rows, model(batch)])
        (kept.sum() + rows.sum()).backward()
        xm.optimizer_step(optimizer)
"""
    assert not rows(program, "XLA206")


CLIPPED = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer

class Annealed(Trainer):
    def _inner_training_loop(self, batch_size=None, args=None, **settings):
        model = self.model
        for step, inputs in enumerate(self.get_train_dataloader()):
            loss = self.training_step(model, inputs)
            torch.nn.utils.clip_grad_norm_({parameters}, 1.0)  # here
            {step}
            self.lr_scheduler.step()
            model.zero_grad()

def work(index):
    Annealed(model=net, args=settings).train()
"""
BY_HAND = "xm.optimizer_step(self.optimizer)"


def test_a_loop_of_a_trainer_that_clips_before_its_own_reduction():
    program = CLIPPED.format(parameters="model.parameters()", step=BY_HAND)
    assert rows(program, "XLA303") == marked(program)


@pytest.mark.parametrize(
    ("parameters", "step"),
    [
        ("amp.master_params(self.optimizer)", BY_HAND),
        ("model.parameters()", "self.optimizer.step()"),
    ],
)
def test_clips_that_no_reduction_of_the_program_follows(parameters, step):
    assert not rows(CLIPPED.format(parameters=parameters, step=step), "XLA303")


def test_a_clip_in_the_other_branch_than_the_reduction():
    program = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer

class Either(Trainer):
    def _inner_training_loop(self, args=None, **settings):
        for step, inputs in enumerate(self.get_train_dataloader()):
            loss = self.training_step(self.model, inputs)
            if self.args.estimated:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.update(loss)
            else:
                xm.optimizer_step(self.optimizer)
"""
    assert not rows(program, "XLA303")


ACCELERATED = """
import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator

def main(model, loader):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            {clip}  # here
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "clip",
    [
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "if accelerator.sync_gradients: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ],
)
def test_a_plain_clip_before_the_step_of_accelerate(clip):
    program = ACCELERATED.format(clip=clip)
    assert rows(program, "XLA303") == marked(program)


@pytest.mark.parametrize(
    "clip",
    [
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "if accelerator.sync_gradients: accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "accelerator.clip_grad_value_(model.parameters(), 1.0)",
    ],
)
def test_a_clip_by_accelerate_reduces_first(clip):
    assert not rows(ACCELERATED.format(clip=clip), "XLA303")


def test_a_plain_clip_for_another_device_is_no_matter():
    program = ACCELERATED.format(clip="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert not found(program.replace("import torch_xla.core.xla_model as xm\n", ""))


OWN_ENGINE = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.AdamW(model.parameters())

    def fit(self, epochs):
        device = xm.xla_device()
        for epoch in range(epochs):
            for batch in pl.MpDeviceLoader(self.loader, device):
                loss = self.model(**batch).loss
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # !XLA303
                xm.optimizer_step(self.optimizer)
"""
OWN_RUN = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import AutoModelForMaskedLM, AutoTokenizer
from engine import Trainer

def work(index):
    device = xm.xla_device()
    tokenizer = AutoTokenizer.from_pretrained("base")
    model = AutoModelForMaskedLM.from_pretrained("base").to(device)
    loader = torch.utils.data.DataLoader(texts(tokenizer), batch_size=8, drop_last=True)  # !XLA402
    Trainer(model, loader).fit(3)

xmp.spawn(work)
"""


def test_a_trainer_of_the_program_own_is_not_that_of_transformers(tmp_path):
    both = told(tmp_path, engine=OWN_ENGINE, run=OWN_RUN)
    assert marks(OWN_ENGINE) <= both["engine"]
    assert marks(OWN_RUN) <= both["run"]


def test_a_trainer_built_on_that_of_transformers_shares_the_samples_out(tmp_path):
    engine = """
from transformers import Trainer as Base

class Trainer(Base):
    def log(self, logs):
        super().log(logs)
"""
    both = told(tmp_path, engine=engine, run=OWN_RUN)
    assert not {code for _, code in both["run"]} & {"XLA402"}


SETTINGS = """
import torch_xla.core.xla_model as xm
from dataclasses import dataclass, field
from transformers import (
    DataCollatorForSeq2Seq, DataCollatorWithPadding, HfArgumentParser, Seq2SeqTrainer,
    TrainingArguments, default_data_collator,
)

@dataclass
class Texts:
    pad_to_max_length: bool = field(default={fill}, metadata={{"help": "pad all to one length"}})
    padding: str = {padding}

def main():
    parser = HfArgumentParser((Texts, TrainingArguments))
    texts, training = parser.parse_args_into_dataclasses()
    padding = "max_length" if texts.pad_to_max_length else False

    def prepare(rows):
        return tokenizer(rows["text"], max_length=128, truncation=True, padding={given})

    collator = {collator}  # here
    Seq2SeqTrainer(model, training, data_collator=collator, train_dataset=rows.map(prepare))
"""
SEQ2SEQ = "DataCollatorForSeq2Seq(tokenizer, model=model)"
CHOSEN = "default_data_collator if texts.pad_to_max_length else DataCollatorWithPadding(tokenizer)"


@pytest.mark.parametrize(
    ("fill", "padding", "given", "collator"),
    [
        (False, '"max_length"', "texts.padding", SEQ2SEQ),
        (True, '"longest"', "padding", SEQ2SEQ),
        (True, '"longest"', '"max_length" if texts.pad_to_max_length else False', SEQ2SEQ),
        (True, '"longest"', "False", CHOSEN),
        (True, '"longest"', "False", "None if texts.pad_to_max_length else " + SEQ2SEQ),
    ],
)
def test_samples_that_settings_pad_to_one_length(fill, padding, given, collator):
    program = SETTINGS.format(fill=fill, padding=padding, given=given, collator=collator)
    assert not rows(program, "XLA209")


@pytest.mark.parametrize(
    ("fill", "padding", "given", "collator"),
    [
        (False, '"max_length"', "padding", SEQ2SEQ),
        (True, '"longest"', "texts.padding", SEQ2SEQ),
        (False, '"longest"', "padding", CHOSEN),
        (True, '"longest"', "other.padding", SEQ2SEQ),
    ],
)
def test_samples_that_settings_leave_as_they_are(fill, padding, given, collator):
    program = SETTINGS.format(fill=fill, padding=padding, given=given, collator=collator)
    assert rows(program, "XLA209") == marked(program)


STEPS_BY = """
import torch
import torch_xla.core.xla_model as xm
import {package}

def train(model, loader):
    device = xm.xla_device()
    model = model.to(device)
    optimizer = {made}  # here
    for batch in loader:
        loss = model(batch.to(device))
        loss.backward()
        xm.optimizer_step(optimizer)
"""


@pytest.mark.parametrize(
    ("package", "made"),
    [
        ("pytorch_optimizer", "pytorch_optimizer.Lamb(model.parameters(), lr=1e-3)"),
        ("torch_optimizer", "torch_optimizer.Lamb(model.parameters())"),
        ("adamp", "adamp.AdamP(model.parameters(), lr=1e-3)"),
        ("transformers", "transformers.Adafactor(model.parameters())"),
        ("transformers", "transformers.Adafactor(model.parameters(), scale_parameter=True)"),
    ],
)
def test_optimizers_of_other_packages_that_read_in_every_step(package, made):
    program = STEPS_BY.format(package=package, made=made)
    assert rows(program, "XLA110") == marked(program)


@pytest.mark.parametrize(
    ("package", "made"),
    [
        ("pytorch_optimizer", "pytorch_optimizer.Lion(model.parameters(), lr=1e-3)"),
        ("timm.optim", "timm.optim.Lamb(model.parameters())"),
        (
            "transformers",
            (
                "transformers.Adafactor(model.parameters(), lr=1e-3, scale_parameter=False, "
                "relative_step=False)"
            ),
        ),
    ],
)
def test_optimizers_of_other_packages_that_read_nothing(package, made):
    assert not rows(STEPS_BY.format(package=package, made=made), "XLA110")


READ_BY = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer

class Described(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        words = {call}  # here
        return model(**inputs, labels=labels).loss
"""


@pytest.mark.parametrize(
    "call",
    [
        "self.processing_class.decode(labels[0])",
        "self.tokenizer.convert_ids_to_tokens(labels[0])",
        'self.tokenizer.pad({"input_ids": labels}, return_tensors="pt", pad_to_multiple_of=128)',
        'self.processor(images=inputs["pixel_values"], return_tensors="pt")',
        'image_processor(inputs["pixel_values"], return_tensors="pt")',
        'feature_extractor(labels, sampling_rate=16000, padding="max_length")',
    ],
)
def test_tokenizers_and_processors_take_what_they_are_given_to_the_host(call):
    program = READ_BY.format(call=call)
    assert rows(program, "XLA101") == marked(program)


@pytest.mark.parametrize(
    "call",
    [
        "self.processor(labels)",  # may be a module
        "self.tokenizer(labels)",  # of images, say
        "self.tokenizer(texts, text_target=names, padding='max_length')",
        "self.tokenizer(labels, return_tensors='pt', padding='max_length')",  # texts
        "self.processor(text=labels, return_tensors='pt', padding='max_length')",
        "self.decoder.decode(labels)",
    ],
)
def test_modules_of_such_names_read_nothing(call):
    assert not rows(READ_BY.format(call=call), "XLA101")


LOADERS = """
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from transformers import Trainer
from transformers.trainer_pt_utils import DistributedLengthGroupedSampler, LengthGroupedSampler

class Balanced(Trainer):
    def get_train_dataloader(self):
        {lines}

def work(index):
    Balanced(model=net, args=settings, train_dataset=rows).train()

xmp.spawn(work)
"""
MADE = "DataLoader(self.train_dataset, batch_size=8, drop_last=True, {})"


@pytest.mark.parametrize(
    "lines",
    [
        f"return {MADE.format('shuffle=True')}  # here",
        f"return {MADE.format('sampler=RandomSampler(self.train_dataset)')}  # here",
        f"""order = SequentialSampler(self.train_dataset)
        return {MADE.format("sampler=order")}  # here""",
        f"""loader = {MADE.format("collate_fn=self.data_collator")}  # here
        return loader""",
        f"return {MADE.format('sampler=self._get_train_sampler()')}  # here",
        f"""order = self._get_train_sampler() if self.args.mixed else None
        return {MADE.format("sampler=order")}  # here""",
        f"""return {MADE.format("sampler=self._get_train_sampler()")}  # here

    def _get_train_sampler(self, dataset=None):
        if self.args.sorted:
            return LengthGroupedSampler(8, dataset=self.train_dataset)
        return super()._get_train_sampler()""",
        f"""return self.loader(self.train_dataset)

    def loader(self, rows):
        return {MADE.format("sampler=RandomSampler(rows)")}  # here""",
    ],
)
def test_loaders_that_a_trainer_takes_as_they_are(lines):
    program = LOADERS.format(lines=lines)
    assert rows(program, "XLA402") == marked(program)


@pytest.mark.parametrize(
    "lines",
    [
        f"return self.accelerator.prepare({MADE.format('shuffle=True')})",
        f"""loader = {MADE.format("shuffle=True")}
        return self.accelerator.prepare(loader)""",
        f"return {MADE.format('batch_sampler=self.batches()')}",
        f"return {MADE.format('sampler=self.order()')}",
        f"""return {MADE.format("sampler=self._get_train_sampler()")}

    def _get_train_sampler(self, dataset=None):
        return DistributedLengthGroupedSampler(8, dataset=self.train_dataset)""",
        """return super().get_train_dataloader()

    def _get_train_sampler(self, dataset=None):
        return RandomSampler(self.train_dataset)""",
        f"""return self.accelerator.prepare(self.loader())

    def loader(self):
        return {MADE.format("sampler=self._get_train_sampler()")}""",
        f"""order = DistributedSampler(self.train_dataset, num_replicas=8, rank=index)
        return {MADE.format("sampler=order")}""",
        """rows = self.train_dataset.shard(xm.xrt_world_size(), xm.get_ordinal())
        return DataLoader(rows, batch_size=8, drop_last=True)""",
        "return super().get_train_dataloader()",
    ],
)
def test_loaders_of_a_trainer_that_share_the_samples_out(lines):
    assert not rows(LOADERS.format(lines=lines), "XLA402")


def test_a_trainer_of_one_process_has_nobody_to_share_with():
    program = LOADERS.format(lines=f"return {MADE.format('shuffle=True')}")
    assert not rows(program.replace("xmp.spawn(work)", "work(0)"), "XLA402")


BLOCKS = """
import torch
import torch_xla.core.xla_model as xm

class Up(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 4) for _ in range(count))

    def forward(self, hidden, skipped):
        for layer in self.layers:
            hidden = torch.cat([hidden, skipped[-1]], dim=1)
            skipped = skipped[:-1]
            hidden = layer(hidden)
        return hidden

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Up(2) for _ in range(3))

    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden, (hidden, hidden))
        return hidden

def train(loader, optimizer):
    device = xm.xla_device()
    net = Net().to(device)
    for batch in loader:
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer)
"""


def test_blocks_that_widen_what_they_are_given_begin_anew_in_each_step():
    assert not rows(BLOCKS, "XLA206")


COPY = """
import torch
import torch_xla.core.xla_model as xm
from transformers import TrainingArguments
from models import Net

class Trainer:
    def __init__(self, model, args, train_dataset=None):
        self.model, self.args, self.train_dataset = model, args, train_dataset

    def get_train_dataloader(self):
        return make_loader(self.train_dataset, self.args)

    def compute_loss(self, model, inputs):
        {read}
        return model(**inputs)[0]

    def training_step(self, model, inputs):
        loss = self.compute_loss(model, self.prepared(inputs))
        loss.backward()
        return loss.detach()

    def prediction_step(self, model, inputs):
        return self.compute_loss(model, self.prepared(inputs))

    def evaluation_loop(self, loader):
        return [self.prediction_step(self.model, inputs) for inputs in loader]

    def train(self):
        model = self.wrapped(self.model)
        for inputs in self.get_train_dataloader():
            self.training_step(model, inputs)
            xm.optimizer_step(self.optimizer)

class Logged(Trainer):
    def log(self, logs):
        print(logs)

trainer = Logged(Net(), args, train_dataset=rows)
trainer.train()
"""


def test_a_changed_copy_of_the_trainer_runs_its_model_on_the_device(tmp_path):
    run_ = COPY.format(read="seen.append(inputs['labels'].sum().item())  # !XLA101")
    both = told(tmp_path, models=NET, run=run_)
    assert marks(NET) <= both["models"]
    assert marks(run_) <= both["run"]


def test_flags_in_a_batch_are_no_tensors(tmp_path):
    run_ = COPY.format(read="with_loss = 1 if inputs.get('return_loss', None) else 0")
    both = told(tmp_path, models=NET, run=run_)
    assert not {code for _, code in both["run"]} & {"XLA104"}


def test_a_model_that_keeps_modules_by_any_name_is_loaded_as_itself(tmp_path):
    models = TAGGER.replace(
        "        self.head = torch",
        "        for name in config.names:\n"
        "            setattr(self, name, torch.nn.Embedding(8, 8))\n"
        "        self.head = torch",
    )
    main = RUN.format(
        imports=XLA, name="Tagger", made="Tagger.from_pretrained('base')", trainer="Trainer(model)"
    )
    assert marks(models) <= told(tmp_path, models=models, run=main)["models"]


CALLBACKS = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer, TrainerCallback

class Watched(TrainerCallback):
    def __init__(self, model):
        self.model = model
        self.before = {}

    def on_step_end(self, args, state, control, **kwargs):
        for name, weight in kwargs["model"].named_parameters():
            if weight.isnan().any():  # !XLA104
                raise ValueError(name)

    def on_optimizer_step(self, args, state, control, **kwargs):
        for name, weight in self.model.named_parameters():
            self.before[name] = weight.detach().cpu()  # !XLA101

    def on_log(self, args, state, control, logs=None, **kwargs):
        print(logs["loss"], kwargs["optimizer"])

class Logged(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        right = outputs.logits.argmax(-1) == inputs["labels"]
        self.log({"right": right.float().mean()})  # !XLA101
        self.log({"rate": self.lr_scheduler.get_last_lr()[0]})
        if self.state.global_step % 50 == 0:
            self.seen = outputs.loss.item()  # !XLA113
        return outputs.loss
"""


def test_callbacks_and_logs_of_a_trainer():
    told_of = {(row, code) for row, code in found(CALLBACKS) if code != "XLA905"}
    assert told_of == marks(CALLBACKS)


FORWARD = """
import torch
import torch_xla.core.xla_model as xm
from transformers import PreTrainedModel, Trainer

class Pool(torch.nn.Module):
    def forward(self, states, mask):
        lengths = mask.sum(1)
        return torch.stack([states[i, : lengths[i]].mean(0) for i in range(4)])  # !XLA108

class Scorer(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
        self.pool = Pool()
        self.calls = 0

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        states = self.embed(input_ids)
        for layer in self.layers:
            dropped = torch.rand([])
            skip = self.training and dropped < self.config.layerdrop
            if not skip:  # !XLA207
                states = layer(states)
        logits = self.pool(states, attention_mask)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        self.calls += 1
        if self.calls % 100 == 0:
            print("loss", loss)  # !XLA113
        return loss, logits

Trainer(model=Scorer(config), args=args).train()
"""


def test_what_a_forward_pass_of_a_trainer_asks_of_tensors():
    assert marks(FORWARD) <= set(found(FORWARD))


@pytest.mark.parametrize(
    ("written", "instead", "code"),
    [
        ("lengths = mask.sum(1)", "lengths = [8, 8, 8, 8]", "XLA108"),
        ("torch.rand([])", "torch.ones([])", "XLA207"),
        ('print("loss", loss)', "self.calls = 0", "XLA113"),
    ],
)
def test_a_forward_pass_that_asks_nothing(written, instead, code):
    assert not rows(FORWARD.replace(written, instead), code)


AVERAGED = """
import copy
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer

class Averaged(Trainer):
    def save_model(self, output_dir=None, _internal_call=False):
        super().save_model(output_dir, _internal_call)
        if self.args.should_save:
            {saved}
"""


def test_weights_that_a_trainer_saves_by_torch_save():
    program = AVERAGED.format(saved="torch.save(self.model.state_dict(), 'average.bin')  # here")
    assert rows(program, "XLA721") == marked(program)


@pytest.mark.parametrize(
    "saved",
    [
        "torch.save(self.args, 'arguments.bin')",
        "torch.save({k: v.cpu() for k, v in self.model.state_dict().items()}, 'average.bin')",
        "self._save(output_dir)",
        "xm.save(self.model.state_dict(), 'average.bin')",
    ],
)
def test_what_a_trainer_saves_without_its_device(saved):
    assert not rows(AVERAGED.format(saved=saved), "XLA721")


@pytest.mark.parametrize(
    ("logged", "told_of"), [("loss", True), ("loss.detach()", True), ("step", False)]
)
def test_what_accelerate_logs_in_every_step_is_read(logged, told_of):
    program = f"""
import torch_xla.core.xla_model as xm
from accelerate import Accelerator

def main(model, optimizer, loader):
    accelerator = Accelerator(log_with="tensorboard")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({{"loss": {logged}}}, step=step)  # here
"""
    assert rows(program, "XLA101") == (marked(program) if told_of else [])


SETTLED = """
try:
    import torch_xla.runtime as xr
    HAS_XLA = True
except ImportError:
    HAS_XLA = False
from transformers import Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
{above}
def main(model, rows, sharded):
    more = {{}}
    if sharded:
        more = {{"fsdp": "full_shard", "fsdp_config": {{"xla": True}}}}
    {made}
"""
WHOLE = 'dataloader_drop_last=True, optim="adamw_torch"'
PLAIN = "args = TrainingArguments('out', per_device_train_batch_size=8, {rest})"
TUNED = "args = SFTConfig('out', per_device_train_batch_size=8, {rest})"


@pytest.mark.parametrize(
    ("above", "made", "rest", "told"),
    [
        ("", PLAIN, WHOLE, ()),
        ("", PLAIN, "dataloader_drop_last=True, **more", ("fused AdamW",)),
        ("", PLAIN, "dataloader_drop_last=True, **sharded", ()),
        ("", PLAIN, f"include_num_input_tokens_seen=True, {WHOLE}", ("tokens",)),
        ("", PLAIN, f"include_num_input_tokens_seen='no', {WHOLE}", ()),
        ("", TUNED, WHOLE, ("TRL turns on gradient checkpointing",)),
        ("", TUNED, f"gradient_checkpointing=False, {WHOLE}", ()),
        ("import torch\ntorch.xla = xr", TUNED, WHOLE, ()),
        ("", "if not HAS_XLA: " + TUNED, "fp16=True", ()),
    ],
)
def test_defaults_of_a_program_that_has_torch_xla_where_it_is(above, made, rest, told):
    program = SETTLED.format(above=above, made=made.format(rest=rest))
    findings = engine.lint(Source("train.py", program)).findings
    messages = [each.message for each in findings if each.code == "XLA905"]
    assert len(messages) == len(told)
    assert all(any(part in message for message in messages) for part in told)
