"""Lightning, Accelerate and transformers as programs ask them for XLA devices."""

import itertools

import pytest
from rule_helpers import found, marked, marks, rows, told_in_files

MODULE = """
import torch
import pytorch_lightning as pl
{imports}

class Net(pl.LightningModule):
    def __init__(self, hparams=None):
        super().__init__()
        {first}
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        {step}
        return loss

    def configure_optimizers(self):
        {optimizers}
"""
TRAINER = """
trainer = pl.Trainer({arguments})
trainer.fit(Net())
"""
ADAM = "return torch.optim.Adam(self.parameters())"


def program(
    imports="",
    first="self.count = 0",
    step="self.log('loss', loss)",
    optimizers=ADAM,
    arguments='accelerator="tpu", devices=8',
):
    module = MODULE.format(imports=imports, first=first, step=step, optimizers=optimizers)
    return module + TRAINER.format(arguments=arguments)


# Names that Lightning 2 no longer has


@pytest.mark.parametrize(
    "imports",
    [
        "from pytorch_lightning.metrics import Accuracy",
        "import pytorch_lightning.metrics as metrics",
        "from pytorch_lightning.callbacks import GPUStatsMonitor, ModelCheckpoint",
        "from pytorch_lightning.core.lightning import LightningModule",
        "from lightning.pytorch.profiler import SimpleProfiler",
        "from pytorch_lightning.plugins.training_type import TPUSpawnPlugin",
        "from pytorch_lightning.utilities.cli import LightningCLI",
        "accuracy = pl.metrics.Accuracy()",
        "parser = pl.Trainer.add_argparse_args(None)",
    ],
)
def test_a_name_that_is_gone_is_told_however_it_is_written(imports):
    text = program(imports=imports)
    row = text.splitlines().index(imports) + 1
    assert rows(text, "XLA901") == [row]


@pytest.mark.parametrize(
    "imports",
    [
        "from pytorch_lightning.plugins import TPUPrecisionPlugin",
        "from pytorch_lightning.accelerators import TPUAccelerator",
        "from pytorch_lightning.strategies import SingleTPUStrategy",
        "from pytorch_lightning.callbacks import ModelCheckpoint",
        "try:\n    from pytorch_lightning.metrics import Accuracy\nexcept ImportError:\n    pass",
    ],
)
def test_names_that_still_work_and_imports_that_are_only_tried_are_left_alone(imports):
    assert rows(program(imports=imports), "XLA901") == []


def test_gone_names_are_not_told_where_no_xla_device_is_asked_for():
    text = program(imports="import pytorch_lightning.metrics", arguments='accelerator="gpu"')
    assert found(text) == []


@pytest.mark.parametrize("given", ["filepath='best'", "prefix='net', dirpath='.'", "period=2"])
def test_arguments_of_callbacks_that_are_gone_are_told(given):
    text = program(imports=f"best = pl.callbacks.ModelCheckpoint(monitor='loss', {given})")
    assert rows(text, "XLA901") == [4]
    with_import = "from pytorch_lightning.callbacks import ModelCheckpoint as Keep\n"
    text = program(imports=f"{with_import}best = Keep({given})")
    assert rows(text, "XLA901") == [5]


@pytest.mark.parametrize(
    "first",
    ["self.hparams = hparams", "self.hparams = dict(lr=1e-3)", "self.hparams=hparams or {}"],
)
def test_hparams_that_are_assigned_are_told(first):
    text = program(first=first)
    assert rows(text, "XLA910") == [text.splitlines().index(f"        {first}") + 1]


@pytest.mark.parametrize(
    "first", ["self.save_hyperparameters(hparams)", "self.hparams.update(a=1)", "self.params = 1"]
)
def test_hparams_that_are_saved_are_fine(first):
    assert rows(program(first=first), "XLA910") == []


# What the Trainer is asked for


@pytest.mark.parametrize(
    "arguments",
    [
        'accelerator="tpu", devices=8, strategy="ddp"',
        'accelerator="tpu", strategy="ddp_find_unused_parameters_true"',
        'accelerator="tpu", devices=8, strategy="fsdp"',
        'accelerator="tpu", strategy="deepspeed_stage_2"',
        'accelerator="tpu", strategy=pl.strategies.DDPStrategy(find_unused_parameters=True)',
        'accelerator="tpu", devices=3',
        'accelerator="tpu", devices=16',
        '**{"accelerator": "tpu", "devices": 8, "strategy": "ddp"}',
        '**dict(accelerator="tpu", devices=8, precision=16)',
    ],
)
def test_what_the_tpu_accelerator_refuses_is_told(arguments):
    text = program(arguments=arguments)
    assert rows(text, "XLA901") == [len(text.splitlines()) - 1]


@pytest.mark.parametrize(
    "arguments",
    [
        'accelerator="tpu", devices=8, strategy="xla"',
        'accelerator="tpu", devices="auto"',
        'accelerator="tpu", devices=4, strategy="auto"',
        'accelerator="tpu", strategy=pl.strategies.XLAStrategy()',
        'accelerator="tpu", devices=[0]',
    ],
)
def test_what_it_takes_is_not_told(arguments):
    assert rows(program(arguments=arguments), "XLA901") == []


def test_a_strategy_for_xla_that_a_gpu_trainer_is_never_given_is_told():
    text = """
    import pytorch_lightning as pl
    from neuronx_distributed.lightning import NeuronXLAStrategy

    def main(model, loader):
        strategy = NeuronXLAStrategy(tensor_parallel_size=8)
        trainer = pl.Trainer(accelerator="gpu", devices=[0], max_epochs=3)  # !XLA901
        trainer.fit(model, loader)
    """
    assert marks(text) <= set(found(text))
    given = text.replace('accelerator="gpu"', 'strategy=strategy, accelerator="gpu"')
    assert rows(given, "XLA901") == []


SETTINGS = [
    'settings = {"tpu_cores": 8, "max_epochs": 3}',
    'settings = dict(max_epochs=3)\nsettings["tpu_cores"] = 8',
    'settings = {"max_epochs": 3}\nsettings.update({"tpu_cores": 8})',
    "settings = {}\nsettings.update(tpu_cores=8)",
    'base = {"tpu_cores": 8}\nsettings = {**base, "max_epochs": 3}',
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_of_the_trainer_in_a_dictionary_are_read(settings):
    text = f"import pytorch_lightning as pl\n\n{settings}\ntrainer = pl.Trainer(**settings)\n"
    assert [code for _, code in found(text)] == ["XLA901"]


@pytest.mark.parametrize(
    "settings",
    [
        'config = {"gradient_checkpointing": True, "dataloader_drop_last": True}',
        "config = dict(gradient_checkpointing=True)",
        'config = {"output_dir": "."}\nconfig["gradient_checkpointing"] = True',
    ],
)
def test_settings_of_transformers_in_a_dictionary_are_read(settings):
    text = (
        "import torch_xla\nfrom transformers import Trainer, TrainingArguments\n\n"
        f"{settings}\narguments = TrainingArguments(**config)\n"
    )
    assert "XLA905" in {code for _, code in found(text)}


def test_settings_for_another_device_are_not_taken_for_tpus():
    text = """
    import torch_xla
    from transformers import Trainer, TrainingArguments

    def main(use_tpu):
        config = {"output_dir": ".", "dataloader_drop_last": True, "optim": "adamw_torch"}
        if use_tpu:
            config["bf16"] = True
        else:
            config["fp16"] = True
            config["gradient_checkpointing"] = True
        return TrainingArguments(**config)
    """
    assert rows(text, "XLA905") == []


# The Trainer of transformers


def trainer_of(arguments: str, after: str = "trainer.train()") -> str:
    return f"""
import torch_xla
from transformers import Trainer, TrainingArguments

def main(model, data, held_back):
    arguments = TrainingArguments(
        "out", dataloader_drop_last=True, optim="adamw_torch", {arguments}
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    {after}

if __name__ == "__main__":
    main(None, None, None)
"""


@pytest.mark.parametrize(
    "fsdp",
    [
        'fsdp="full_shard"',
        'fsdp="full_shard auto_wrap", fsdp_config={"fsdp_min_num_params": 1000}',
        'fsdp="full_shard", fsdp_config={"transformer_layer_cls_to_wrap": ["Block"]}',
    ],
)
def test_fsdp_of_pytorch_is_told(fsdp):
    assert len(rows(trainer_of(fsdp), "XLA905")) == 1


@pytest.mark.parametrize(
    "fsdp",
    [
        'fsdp="full_shard", fsdp_config={"xla": True, "xla_fsdp_v2": True}',
        'fsdp="full_shard", fsdp_config="fsdp.json"',
        'fsdp="", bf16=True',
        "fsdp=False",
    ],
)
def test_fsdp_for_xla_and_none_are_fine(fsdp):
    assert rows(trainer_of(fsdp), "XLA905") == []


@pytest.mark.parametrize("cores", ["tpu_num_cores=8", '**{"tpu_num_cores": 8}'])
def test_cores_that_a_trainer_is_told_of_and_nobody_starts_are_told(cores):
    assert len(rows(trainer_of(cores), "XLA449")) == 1


def test_cores_that_are_started_elsewhere_are_not_told():
    text = trainer_of("tpu_num_cores=8") + "\n\ndef _mp_fn(index):\n    main(None, None, None)\n"
    assert rows(text, "XLA449") == []


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("texts.process(text)", False),
        ("images.preprocess(text)", False),
        ("layer.output(text)", False),
        ("context.Process(target=main)", True),
        ("subprocess.check_output(text)", True),
    ],
)
def test_what_is_called_process_starts_none(line, starts):
    text = trainer_of("tpu_num_cores=8") + f"\n\ndef cleaned(text):\n    return {line}\n"
    assert len(rows(text, "XLA449")) == (0 if starts else 1)


def test_the_loader_of_a_trainer_that_pins_is_told():
    assert rows(trainer_of("dataloader_pin_memory=True"), "XLA718") != []
    assert rows(trainer_of("dataloader_pin_memory=False"), "XLA718") == []


@pytest.mark.parametrize(
    ("test", "call"),
    list(
        itertools.product(
            ["trainer.is_world_process_zero()", "arguments.process_index == 0"],
            ["trainer.save_model('best')", "trainer.evaluate(held_back)"],
        )
    ),
)
def test_meetings_of_the_trainer_on_the_main_process_are_told(test, call):
    after = f"trainer.train()\n    if {test}:\n        {call}"
    assert len(rows(trainer_of("bf16=True", after), "XLA405")) == 1
    assert rows(trainer_of("bf16=True", f"trainer.train()\n    {call}"), "XLA405") == []


# Accelerate

ACCELERATE = """
import torch
import torch_xla
from accelerate import Accelerator
from accelerate.utils import set_seed

def train(model, optimizer, loader, loss_fn):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (x, y) in enumerate(loader):
        loss = loss_fn(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        {inside}
    {behind}
"""


def test_processes_that_meet_in_every_step_are_told():
    text = ACCELERATE.format(inside="accelerator.wait_for_everyone()", behind="return model")
    assert rows(text, "XLA423") == [15]
    text = ACCELERATE.format(inside="pass", behind="accelerator.wait_for_everyone()")
    assert rows(text, "XLA423") == []


@pytest.mark.parametrize(
    "guard", ["accelerator.is_main_process", "accelerator.is_local_main_process"]
)
def test_a_state_that_the_main_process_alone_saves_is_told(guard):
    behind = f"if {guard}:\n        accelerator.save_state('checkpoint')"
    assert rows(ACCELERATE.format(inside="pass", behind=behind), "XLA405") == [17]
    behind = "accelerator.save_state('checkpoint')"
    assert rows(ACCELERATE.format(inside="pass", behind=behind), "XLA405") == []


def test_an_accelerator_that_a_function_is_given_is_known_by_its_name():
    text = """
    import torch_xla

    def train(model, optimizer, loader, loss_fn, accelerator):
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for step, (x, y) in enumerate(loader):
            loss = loss_fn(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.wait_for_everyone()  # !XLA423
        if accelerator.is_main_process:
            accelerator.save_state("last")  # !XLA405
    """
    assert marks(text) <= set(found(text))


@pytest.mark.parametrize("kind", ["DistributedType.XLA", "DistributedType.TPU"])
def test_the_branch_for_other_devices_is_not_taken_for_that_of_tpus(kind):
    text = f"""
    from accelerate import Accelerator, DistributedType
    from transformers import AutoTokenizer

    def loader_of(accelerator, name):
        tokenizer = AutoTokenizer.from_pretrained(name)

        def collate(samples):
            if accelerator.distributed_type == {kind}:
                return tokenizer.pad(samples, padding="max_length", max_length=128)
            return tokenizer.pad(samples, padding="longest", return_tensors="pt")

        return collate
    """
    assert rows(text, "XLA209") == []


# What Lightning's modules do for each core


@pytest.mark.parametrize(
    "first",
    [
        "self.optimizer = torch.optim.SGD(self.parameters(), 0.1)",
        "self.opt = torch.optim.AdamW(params=self.parameters(), lr=1e-3)",
        "groups = [{'params': self.parameters()}]; self.opt = torch.optim.AdamW(groups)",
    ],
)
def test_optimizers_that_a_module_makes_at_once_are_told(first):
    text = program(first=first, optimizers="return self.opt")
    assert rows(text, "XLA305") == [9]


def test_optimizers_of_configure_optimizers_are_fine():
    assert rows(program(), "XLA305") == []


PLATEAU = (
    "opt = torch.optim.Adam(self.parameters()); "
    "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt); "
    "return {}"
)


@pytest.mark.parametrize(
    "returned",
    [
        "{'optimizer': opt, 'lr_scheduler': plateau, 'monitor': 'loss'}",
        "{'optimizer': opt, 'lr_scheduler': {'scheduler': plateau, 'monitor': 'loss'}}",
        "[opt], [dict(scheduler=plateau, monitor='loss')]",
    ],
)
def test_a_plateau_of_what_each_core_logs_is_told(returned):
    optimizers = PLATEAU.format(returned)
    assert rows(program(optimizers=optimizers), "XLA419") == [15]
    synced = program(optimizers=optimizers, step="self.log('loss', loss, sync_dist=True)")
    assert rows(synced, "XLA419") == []
    alone = program(optimizers=optimizers, arguments='accelerator="tpu", devices=1')
    assert rows(alone, "XLA419") == []


EVALUATED = """
import torch
import torchmetrics
import lightning as L

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.error = torchmetrics.MeanSquaredError()

    def validation_step(self, batch, index):
        x, y = batch
        guess = self.layer(x)
        self.error.update(guess, y)
        self.log("val_error", self.error)
        self.log("val_loss", torch.nn.functional.mse_loss(guess, y){more})
"""


def test_what_each_core_logs_in_an_evaluation_is_told(tmp_path):
    script = "import lightning as L\nfrom net import Net\n\n{}\ntrainer.fit(Net())\n"
    trainer = 'trainer = L.Trainer(accelerator="tpu", devices="auto")'
    files = {"net.py": EVALUATED.format(more=""), "main.py": script.format(trainer)}
    assert told_in_files(tmp_path, files) == {("net.py", 17, "XLA427")}
    files["net.py"] = EVALUATED.format(more=", sync_dist=True")
    assert told_in_files(tmp_path, files) == set()


# Programs of several files


@pytest.mark.parametrize(
    "trainer",
    [
        "pl.Trainer(num_tpu_cores=8)",
        "pl.Trainer(tpu_cores=8)",
        'pl.Trainer(accelerator="tpu", devices=8)',
        "pl.Trainer(strategy=pl.strategies.XLAStrategy())",
    ],
)
def test_the_module_of_another_file_is_linted_for_tpus(tmp_path, trainer):
    module = MODULE.format(
        imports="", first="pass", step="print(loss.item())", optimizers="return None"
    )
    script = f"import pytorch_lightning as pl\nfrom net import Net\n\n{trainer}.fit(Net())\n"
    told = told_in_files(tmp_path, {"net.py": module, "main.py": script})
    assert ("net.py", 15, "XLA101") in told


def test_what_a_module_gives_back_of_a_helper_file_is_on_the_device(tmp_path):
    files = {
        "layers.py": (
            "import torch\n\n\nclass Encoder(torch.nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n"
            "        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4)])\n\n"
            "    def forward(self, x):\n        kept = []\n"
            "        for layer in self.layers:\n            x = layer(x)\n"
            "            kept.append(x)\n        return x, kept\n"
        ),
        "losses.py": (
            "import torch\n\n\ndef closeness(outputs):\n    parts = []\n"
            "    for one in outputs:\n        part = one.float().mean()\n"
            "        parts.append(part.item())\n    return parts\n"
        ),
        "main.py": (
            "import lightning as L\nfrom layers import Encoder\nfrom losses import closeness\n\n\n"
            "class Net(L.LightningModule):\n    def __init__(self):\n"
            "        super().__init__()\n        self.encoder = Encoder()\n\n"
            "    def training_step(self, batch, index):\n"
            "        out, kept = self.encoder(batch)\n"
            "        closeness(kept)\n        return out.mean()\n\n\n"
            'L.Trainer(accelerator="tpu", devices=8).fit(Net())\n'
        ),
    }
    assert ("losses.py", 8, "XLA101") in told_in_files(tmp_path, files)


# Made on the host


@pytest.mark.parametrize(
    "step",
    [
        "x[range(x.shape[0]), y]",
        "x[list(range(len(x))), y]",
        "torch.linspace(0, 1, x.shape[0]).to(self.device)",
        "torch.linspace(0, 1, x.shape[0]).long().unsqueeze(1).to(self.device)",
        "torch.arange(x.size(0)).unsqueeze(1).expand(x.size(0), self.hparams.width).to(x.device)",
    ],
)
def test_indices_and_constants_that_are_made_in_each_step_are_told(step):
    assert rows(program(step=f"extra = {step}"), "XLA604") == [15]


def test_a_tracker_that_grows_behind_another_file_is_told(tmp_path):
    tracker = (
        "import torch\n\n\nclass Tracker:\n    def __init__(self):\n        self.temp = {}\n"
        "        self.reset()\n\n    def reset(self):\n        self.temp['labels'] = None\n\n"
        "    def track(self, labels):\n        if self.temp['labels'] is None:\n"
        "            self.temp['labels'] = labels\n        else:\n"
        "            self.temp['labels'] = torch.cat([self.temp['labels'], labels])\n"
    )
    script = (
        "import torch_xla\nfrom accelerate import Accelerator\nfrom tracker import Tracker\n\n\n"
        "def train(model, optimizer, loader, loss_fn, epochs):\n"
        "    accelerator = Accelerator()\n    tracker = Tracker()\n"
        "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
        "    for epoch in range(epochs):\n        for x, y in loader:\n"
        "            loss = loss_fn(model(x), y)\n            accelerator.backward(loss)\n"
        "            optimizer.step()\n            optimizer.zero_grad()\n"
        "            tracker.track(y)\n        tracker.reset()\n"
    )
    told = told_in_files(tmp_path, {"tracker.py": tracker, "main.py": script})
    assert ("tracker.py", 16, "XLA206") in told
    anew = script.replace(
        "            tracker.track(y)\n",
        "            tracker.reset()\n            tracker.track(y)\n",
    )
    told = told_in_files(tmp_path, {"tracker.py": tracker, "main.py": anew})
    assert ("tracker.py", 16, "XLA206") not in told


# What every process of Accelerate does

LAUNCHED = """
import json
import torch
import torch_xla
from accelerate import Accelerator

def main(make, loader, tokenizer, path):
    accelerator = Accelerator()
    model = make()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    {line}

if __name__ == "__main__":
    main(None, None, None, "out")
"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("print('done')", "XLA401"),
        ("accelerator.unwrap_model(model).save_pretrained(path)", "XLA406"),
        ("model.save_pretrained(path, save_function=accelerator.save)", "XLA406"),
        ("tokenizer.save_pretrained('out')", "XLA406"),
        ("json.dump({}, open('log.json', 'w'))", "XLA406"),
    ],
)
def test_what_every_process_prints_and_writes_is_told(line, code):
    assert rows(LAUNCHED.format(line=line), code) == [17]
    alone = f"if accelerator.is_main_process:\n        {line}"
    assert rows(LAUNCHED.format(line=alone), code) == []


@pytest.mark.parametrize(
    "line",
    [
        "accelerator.print('done')",
        "model.save_pretrained(path, is_main_process=accelerator.is_main_process)",
        "model.save_pretrained(path, safe_serialization=False, save_function=accelerator.save)",
    ],
)
def test_what_writes_once_by_itself_is_not_told(line):
    assert rows(LAUNCHED.format(line=line), "XLA401") == []
    assert rows(LAUNCHED.format(line=line), "XLA406") == []


# Norms and slices in helpers

HELPED = """
import torch
import torch_xla

{helper}

def train(model, loader, device):
    device = torch_xla.device()
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        {call}
        optimizer.step()
        torch_xla.sync()
"""
NORM = """
def grad_norm(parameters, norm_type=2):
    if {test}:
        parameters = [parameters]
    parameters = {kept}
    total = 0
    for p in parameters:
        total += p.grad.data.norm(norm_type).item() ** norm_type  # here
    return total ** (1 / norm_type)
"""


@pytest.mark.parametrize(
    "test", ["isinstance(parameters, torch.Tensor)", "torch.is_tensor(parameters)"]
)
@pytest.mark.parametrize(
    "kept",
    [
        "list(filter(lambda p: p.grad is not None, parameters))",
        "[p for p in parameters if p.grad is not None]",
    ],
)
def test_norms_of_gradients_that_are_read_one_by_one_are_told(test, kept):
    text = HELPED.format(
        helper=NORM.format(test=test, kept=kept), call="grad_norm(model.parameters())"
    )
    assert rows(text, "XLA101") == [
        row for row, line in enumerate(text.splitlines(), 1) if line.endswith("# here")
    ]


SLICES = [
    (
        "for i, (start, end) in enumerate(zip(starts, starts + length)):\n"
        "        out[i] = x[i, start:end]  # here"
    ),
    (
        "for i in range(x.size(0)):\n        start = starts[i]\n"
        "        out[i] = x[i, start : start + length]  # here"
    ),
]


@pytest.mark.parametrize("loop", SLICES)
def test_slices_between_device_values_are_told(loop):
    helper = (
        f"def slices(x, starts, length):\n    out = torch.zeros_like(x)\n    {loop}\n    return out"
    )
    call = "slices(x, (torch.rand(8, device=x.device) * 4).long(), 2)"
    text = HELPED.format(helper=helper, call=call)
    assert rows(text, "XLA108") == [
        row for row, line in enumerate(text.splitlines(), 1) if line.endswith("# here")
    ]
    numbers = HELPED.format(helper=helper, call="slices(x, [0, 1, 2], 2)")
    assert rows(numbers, "XLA108") == []


@pytest.mark.parametrize(
    "guard",
    [
        "if not accelerator.is_main_process or path is None:\n        return",
        "if path is None or not accelerator.is_main_process:\n        return",
        "if not accelerator.is_main_process or path is None or not loader:\n        return",
    ],
)
def test_those_that_leave_early_write_nothing(guard):
    line = f"{guard}\n    tokenizer.save_pretrained(path)"
    assert rows(LAUNCHED.format(line=line), "XLA406") == []


FINE_TUNED = """
import torch_xla
from trl import SFTConfig, SFTTrainer

def main(model, data, collator):
    config = SFTConfig("out", dataloader_drop_last=True, {settings})
    trainer = SFTTrainer(model=model, args=config, train_dataset=data{more})
    trainer.train()
"""


@pytest.mark.parametrize(
    ("settings", "row"),
    [("max_length=512", 7), ("packing=False", 6), ("pad_to_multiple_of=8, packing=False", 6)],
)
def test_batches_that_trl_pads_to_the_longest_are_told(settings, row):
    assert rows(FINE_TUNED.format(settings=settings, more=""), "XLA209") == [row]


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ("packing=True", ""),
        ("packing=main.packing", ""),
        ("pad_to_multiple_of=256", ""),
        ("max_length=512", ", data_collator=collator"),
        ("**main.settings", ""),
    ],
)
def test_batches_of_few_lengths_are_not_told(settings, more):
    assert rows(FINE_TUNED.format(settings=settings, more=more), "XLA209") == []


ANNOTATED = """\
import torch
import pytorch_lightning as pl
from typing import Any, Dict


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def training_step(self, batch{annotation}, batch_idx: int):
        loss = torch.nn.functional.cross_entropy(self.net(batch["x"]), batch["y"])
        self.shown = batch["y"].sum().item()  # here
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


pl.Trainer(accelerator="tpu", devices=8).fit(Net(), loader)
"""
LOSS = """\
import torch
import torch_xla.core.xla_model as xm
from typing import Any, Dict
from transformers import Trainer


class Ours(Trainer):
    def compute_loss(self, model, inputs{annotation}, return_outputs: bool = False):
        labels = inputs.pop("labels")
        self.shown = labels.sum().item()  # here
        return model(**inputs).loss


def _mp_fn(index):
    Ours(model=make()).train()
"""


@pytest.mark.parametrize("program", [ANNOTATED, LOSS], ids=["Lightning", "Trainer"])
@pytest.mark.parametrize("annotation", ["", ": dict", ": Dict[str, Any]", ": dict[str, object]"])
def test_batches_that_are_annotated_as_dictionaries_hold_tensors(program, annotation):
    program = program.replace("{annotation}", annotation)
    assert rows(program, "XLA101") == marked(program)


def test_numbers_beside_the_batch_stay_numbers():
    program = ANNOTATED.replace("{annotation}", ": dict").replace(
        'batch["y"].sum().item()', "float(batch_idx)"
    )
    assert rows(program, "XLA101") == rows(program, "XLA102") == []
