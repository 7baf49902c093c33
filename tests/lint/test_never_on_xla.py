"""Code of a project for XLA devices that never runs on one: silent, and what is told beside it.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import marks, marks_in_files, rows, told_in_files

FABRIC = """\
import lightning as L
import torch
from torch.utils.data import DataLoader
from {package} import Decoder


def main(corpus, tpus):
    fabric = L.Fabric(devices=8, accelerator="tpu" if tpus else "auto")
    fabric.launch()
    model = fabric.setup(Decoder())
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
    loader = fabric.setup_dataloaders(DataLoader(corpus, batch_size=4, drop_last=True))
    for tokens in loader:
        loss = model(tokens).mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item()){mark}
"""
DECODER = """\
import torch
{imports}


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(64, 64)

    def forward(self, tokens):
        return self.mix(tokens)
"""


@pytest.mark.parametrize(
    "imports",
    [
        "from flash_attn import flash_attn_func",
        "import rotary_emb",
        "if torch.cuda.is_available():\n    import rotary_emb",
        "import einops",
    ],
)
def test_a_program_with_words_of_tpus_is_told_whatever_it_imports(tmp_path, imports):
    files = {
        "pretrain.py": FABRIC.format(package="decoder", mark="  # !XLA101"),
        "decoder.py": DECODER.format(imports=imports),
    }
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


def test_what_a_package_that_needs_cuda_imports_is_for_gpus(tmp_path):
    plain = DECODER.format(imports="").replace(
        "        return", "        print(tokens.sum().item())\n        return"
    )
    files = {
        "pretrain.py": FABRIC.format(package="decoders", mark="  # !XLA101"),
        "decoders/__init__.py": "from .plain import Decoder\nfrom .fused import fast_loss\n",
        "decoders/plain.py": plain,
        "decoders/fused.py": "import xentropy_cuda_lib\n\n\ndef fast_loss(x):\n    return x\n",
    }
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})
    files["decoders/fused.py"] = "def fast_loss(x):\n    return x\n"
    files["decoders/plain.py"] = plain.replace("item())", "item())  # !XLA101")
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


@pytest.mark.parametrize(
    ("imports", "for_gpus"),
    [
        ("from decoders.ops.fused_mlp_cuda import forward", True),
        ("import fused_mlp_cuda", True),
        ("from helpers import to_cuda", False),
        ("try:\n    import fused_mlp_cuda\nexcept ImportError:\n    fused = None", False),
    ],
)
def test_a_compiled_module_of_the_project_that_says_it_is_cudas(tmp_path, imports, for_gpus):
    plain = DECODER.format(imports="").replace(
        "        return",
        f"        print(tokens.sum().item()){'' if for_gpus else '  # !XLA101'}\n        return",
    )
    files = {
        "pretrain.py": FABRIC.format(package="decoders", mark="  # !XLA101"),
        "decoders/__init__.py": "from .plain import Decoder\nfrom .fused import fast_loss\n",
        "decoders/plain.py": plain,
        "decoders/fused.py": f"{imports}\n\n\ndef fast_loss(x):\n    return x\n",
    }
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


TEMPLATE = """\
import torch
import transformers
from model import Reader


class Tuner(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss = model(**inputs).loss
        self.last = loss.item(){mark}
        return loss


def main():
    Tuner(Reader.from_pretrained("reader"), transformers.TrainingArguments("out")).train()


def _mp_fn(index):
    # For xla_spawn (TPUs)
    main()
"""


@pytest.mark.parametrize("imports", ["from flash_attn import flash_attn_func", "import math"])
def test_a_template_for_tpus_whose_model_needs_cuda(tmp_path, imports):
    model = f"import transformers\n{imports}\n\n\nclass Reader(transformers.BertModel):\n    pass\n"
    mark = "" if "flash" in imports else "  # !XLA101"
    files = {"tune.py": TEMPLATE.format(mark=mark), "model.py": model}
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


@pytest.mark.parametrize(
    ("name", "for_gpus"), [("pad_to_max_length", True), ("pad_for_tpus", False)]
)
def test_a_sentence_about_tpus_makes_no_program_for_them(tmp_path, name, for_gpus):
    said = f"""
def options(parser):
    # What pads for speed says why.
    parser.add_argument("--{name}", help="Efficient on GPUs, but very slow on a TPU.")
"""
    model = (
        "import transformers\nfrom flash_attn import flash_attn_func\n\n\n"
        "class Reader(transformers.BertModel):\n    pass\n"
    )
    tune = TEMPLATE.format(mark="" if for_gpus else "  # !XLA101") + said
    files = {"tune.py": tune, "model.py": model}
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


def test_what_is_imported_where_it_is_called_for_says_nothing(tmp_path):
    fused = "def fast_loss(x):\n    import xentropy_cuda_lib\n    return x\n"
    files = {
        "pretrain.py": FABRIC.format(package="decoders", mark="  # !XLA101"),
        "decoders/__init__.py": "from .plain import Decoder\nfrom .fused import fast_loss\n",
        "decoders/plain.py": DECODER.format(imports=""),
        "decoders/fused.py": fused,
    }
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


REFUSING = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Base:
    def __init__(self, config):
        self.use_tpu = config["tpu"]
        self.device = xm.xla_device() if self.use_tpu else torch.device("cuda")
        self.model = config["model"].to(self.device)
        self.loader = pl.MpDeviceLoader(config["loader"], self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


class Contrastive(Base):
    def __init__(self, config):
        super().__init__(config)
        {refuses}
        self.losses = []

    def train(self):
        for images in self.loader:
            loss = self.model(images).mean()
            loss.backward()
            if self.use_tpu:
                xm.optimizer_step(self.optimizer)
            else:
                self.optimizer.step()
            self.losses.append(loss.item()){mark}


class Longer(Contrastive):
    def __init__(self, config):
        super().__init__(config)
        self.seen = []

    def evaluate(self):
        with torch.no_grad():
            for images in self.loader:
                self.seen.append(self.model(images).mean().item()){mark}


def main(config):
    Contrastive(config).train()
    Longer(config).evaluate()
"""


@pytest.mark.parametrize(
    ("refuses", "silent"),
    [
        ("assert not self.use_tpu", True),
        ('if self.use_tpu:\n            raise NotImplementedError("no TPUs yet")', True),
        ("assert self.model is not None", False),
        ("if self.use_tpu:\n            self.slow = True", False),
    ],
)
def test_a_class_that_refuses_tpus_never_runs_there(refuses, silent):
    program = REFUSING.format(refuses=refuses, mark="" if silent else "  # !XLA101")
    told = {(row, "XLA101") for row in rows(program, "XLA101")}
    assert told == {one for one in marks(program) if one[1] == "XLA101"}


WORKER = """\
import torch
from torch.utils.data import DataLoader


class Worker:
    def __init__(self, device):
        self.device = device

    def train(self, model, dataset, optimizer):
        model.to(self.device)
        for batch in DataLoader(dataset, batch_size=8):
            loss = model(batch.to(self.device)).mean()
            loss.backward()
            optimizer.step()
            print(loss.item()){mark}
"""
ON_CORES = """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def on_core(index, model, loader, optimizer):
    device = xm.xla_device()
    model.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)


def on_cores(*args):
    xmp.spawn(on_core, args=args)
"""
PRETRAIN = """\
import torch
from tpu_work import on_cores
from work import Worker


class Pretraining:
    def __init__(self, device, model):
        self.model = model
        self.on_tpu = device == "tpu"
        {made}

    def run(self, loader, dataset, optimizer):
        if self.on_tpu:
            on_cores(self.model, loader, optimizer)
            return
        self.worker.train(self.model, dataset, optimizer)
"""
CLASSIFY = """\
from work import Worker


def classify(model, dataset, optimizer, device=None):
    Worker(device or "cpu").train(model, dataset, optimizer)
"""


def test_a_class_that_is_made_where_there_is_no_tpu_never_runs_on_one(tmp_path):
    made = 'if device == "tpu":\n            self.worker = None\n'
    made += "        else:\n            self.worker = Worker(device)"
    files = {
        "pretrain.py": PRETRAIN.format(made=made),
        "work.py": WORKER.format(mark=""),
        "tpu_work.py": ON_CORES,
        "classify.py": CLASSIFY,
    }
    assert told_in_files(tmp_path, files, {"XLA101", "XLA301", "XLA203"}) == set()


CHOSEN = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def one_epoch(model, loader, optimizer, device):
    for images in loader:
        loss = model(images.to(device)).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


def xla_epoch(model, loader, optimizer, device):
    for images in loader:
        loss = model(images).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        print(loss.item())  # !XLA101


def train(model, loader, optimizer, device, epochs, use_tpu=False):
    {chosen}
    for epoch in range(epochs):
        epoch_fn(model, loader, optimizer, device)
"""


@pytest.mark.parametrize(
    "chosen",
    [
        "if use_tpu:\n        epoch_fn = xla_epoch\n    else:\n        epoch_fn = one_epoch",
        'epoch_fn = xla_epoch if device.type == "xla" else one_epoch',
    ],
)
def test_a_function_that_a_name_takes_for_other_devices_runs_there_alone(chosen):
    program = CHOSEN.format(chosen=chosen)
    told = {(row, "XLA101") for row in rows(program, "XLA101")}
    assert told == {one for one in marks(program) if one[1] == "XLA101"}


def test_a_function_that_a_name_takes_for_all_devices_runs_on_xla_too():
    program = CHOSEN.format(chosen="epoch_fn = one_epoch if device else xla_epoch")
    assert rows(program, "XLA101") == [11, 19]


BESIDE_CORES = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from options import args, corpus, build

device = torch.device("cuda"){mark}


def sketch():
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in corpus():
        loss = model(images.to(device)).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


def sketch_on_core(index, args):
    device = xm.xla_device()
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in pl.MpDeviceLoader(corpus(), device):
        loss = model(images).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        print(loss.item())  # !XLA101
    {also}


if args.cores:
    xmp.spawn(sketch_on_core, args=(args,))
else:
    sketch()
"""


def test_functions_for_gpus_beside_those_that_the_cores_run():
    program = BESIDE_CORES.format(also="xm.rendezvous('end')", mark="")
    asked = {"XLA101", "XLA706", "XLA301"}
    told = {(row, code) for code in asked for row in rows(program, code)}
    assert told == {one for one in marks(program) if one[1] in asked}


def test_a_function_for_gpus_that_the_cores_run_too_is_told():
    program = BESIDE_CORES.format(also="sketch()", mark="  # !XLA706")
    told = {(row, "XLA706") for row in rows(program, "XLA706")}
    assert told == {one for one in marks(program) if one[1] == "XLA706"}


FITTER = """\
import torch

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None


class Fitter(torch.nn.Module):
    def fit(self, loader, device="cuda", epochs=1):
        device = xm.xla_device() if device == "tpu" else torch.device(device)
        self.to(device)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        for epoch in range(epochs):
            for images, labels in loader:
                images, labels = images.to(device), labels.to(device)
                loss = self.step(images, labels)
                loss.backward()
                if xm is not None:
                    xm.optimizer_step(optimizer)
                else:
                    optimizer.step()
"""
DIGITS = """\
import torch
from fitter import Fitter


class Digits(Fitter):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 10)

    def step(self, images, labels):
        scores = self.net(images)
        self.seen = torch.argmax(scores, dim=1).cpu(){mark}
        return torch.nn.functional.cross_entropy(scores, labels)


if __name__ == "__main__":
    Digits().fit(torch.load("digits.pt"), {device}epochs=3)
"""


@pytest.mark.parametrize(
    ("device", "silent"),
    [('device="cpu", ', True), ('device="cuda:0", ', True), ('device="tpu", ', False), ("", False)],
)
def test_a_script_that_says_that_it_trains_on_another_device(tmp_path, device, silent):
    mark = "" if silent else "  # !XLA101"
    files = {"fitter.py": FITTER, "digits.py": DIGITS.format(device=device, mark=mark)}
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


STEPS = """\
import lightning as L
import torch


class Tagger(L.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def training_step(self, batch, batch_idx):
        loss = self.net(batch).mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

    def steps(self):
        cores = max(1, self.trainer.num_processes)
        if self.trainer.tpu_cores:
            cores = max(cores, self.trainer.tpu_cores)
        return self.trainer.max_epochs // cores
"""
FITS = """\
import lightning as L
from net import net
from tagger import Tagger

trainer = L.Trainer(max_epochs=3, {asks}log_every_n_steps=1){mark}
trainer.fit(Tagger(net))
"""


@pytest.mark.parametrize(("asks", "silent"), [("", True), ('accelerator="tpu", ', False)])
def test_who_counts_the_cores_of_its_trainer_asks_for_none(tmp_path, asks, silent):
    mark = "" if silent else "  # !XLA903"
    files = {"tagger.py": STEPS, "fits.py": FITS.format(asks=asks, mark=mark)}
    assert told_in_files(tmp_path, files, {"XLA903"}) == marks_in_files(files, {"XLA903"})


COPIED = """\
import torch
import transformers
from loading import student


class Distiller(transformers.Trainer):
    def __init__(self, name, **kwargs):
        super().__init__(model=student(name), **kwargs)

    def _inner_training_loop(self, loader, **kwargs):
        for batch in loader:
            loss = self.training_step(self.model, batch)
            if transformers.trainer.is_torch_xla_available():
                transformers.trainer.xm.mark_step()
            self.control = loss.item(){mark}


def main(name, loader):
    Distiller(name)._inner_training_loop(loader)
"""
LOADING = """\
import transformers


def student(name, small=False):
    model = transformers.AutoModelForCausalLM.from_pretrained(name{where})
    {moves}
    return model
"""


@pytest.mark.parametrize(
    ("where", "moves", "silent"),
    [
        (', device_map="cuda"', "model.train()", True),
        ("", 'model.to("cuda")', True),
        ("", 'if small:\n        model.to("cuda")', False),
        ("", "model.train()", False),
    ],
)
def test_a_copied_question_for_xla_beside_models_that_are_put_on_a_gpu(
    tmp_path, where, moves, silent
):
    files = {
        "distiller.py": COPIED.format(mark="" if silent else "  # !XLA101"),
        "loading.py": LOADING.format(where=where, moves=moves),
    }
    assert told_in_files(tmp_path, files, {"XLA101", "XLA706"}) >= marks_in_files(files, {"XLA101"})
    assert not silent or told_in_files(tmp_path, files, {"XLA101", "XLA706"}) == set()


HELPER = """\
import torch
from transformers import Trainer


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss = model(**inputs).loss
        self.last = loss.item(){mark}
        return loss


def build(net):
    return torch.optim.AdamW(net.parameters()){more}
"""
RUN = """\
import torch_xla.core.xla_model as xm
from transformers import Trainer
{imports}


def _mp_fn(index):
    main()


def main():
    net, data, options = load()
    trainer = {trainer}(net, options, train_dataset=data, optimizers=(build(net), None))
    trainer.train()
"""
REGISTERED = "\n\n\n@register\ndef begin(*given):\n    return Weighted(*given)"
LAUNCHER = """from importlib import import_module
from helper import build


def launch(name):
    found = import_module(name)
    return found._mp_fn
"""
FINDER = LAUNCHER.replace("found._mp_fn", "getattr(found, name)")
WRITER = LAUNCHER.replace("found = import_module(name)", "return import_module(name).Writer")
LAZY = LAUNCHER.replace(
    "(name)\n    return found._mp_fn", "('torch_xla.runtime')\n    return name(found)"
)
OWN = LAZY.replace("torch_xla.runtime", "helper")
STARTS = "\n\n\ndef start(*given, **named):\n    return Weighted(*given, **named)"


@pytest.mark.parametrize(
    ("imports", "trainer", "more", "told"),
    [
        ("from helper import build", "Trainer", "", False),
        ("from helper import build", "Trainer", STARTS, False),
        ("from helper import Weighted, build", "Weighted", "", True),
        ("from helper import build, start", "start", STARTS, True),
        # Kept in a table, found by a text, or made by a library.
        ("from helper import build", "Trainer", "\n\n\nALL = [Weighted]", True),
        ("from helper import build", "Trainer", REGISTERED, True),
        ("from helper import build", "options['Weighted']", "", True),
        ("import helper\nfrom helper import build", "getattr(helper, options.kind)", "", True),
        ("from helper import build\nfrom hydra.utils import instantiate", "instantiate", "", True),
        ("import helper\nfrom helper import build", "options.make(helper)", "", True),
        ("import torch.nn as nn\nfrom helper import build", "options.make(nn)", "", False),
        (LAUNCHER, "Trainer", "", False),
        (FINDER, "Trainer", "", True),
        (WRITER, "Trainer", "", False),
        (LAZY, "Trainer", "", False),
        (OWN, "Trainer", "", True),
    ],
)
def test_a_class_of_a_helper_that_nothing_names(tmp_path, imports, trainer, more, told):
    files = {
        "helper.py": HELPER.format(mark="  # !XLA101" if told else "", more=more),
        "run.py": RUN.format(imports=imports, trainer=trainer),
    }
    asked = {"XLA101"}
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)


def test_a_class_that_a_package_hands_on(tmp_path):
    files = {
        "parts/__init__.py": "from .helper import *\n",
        "parts/helper.py": HELPER.format(mark="  # !XLA101", more=""),
        "run.py": RUN.format(imports="from parts import build", trainer="Trainer"),
    }
    asked = {"XLA101"}
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)
