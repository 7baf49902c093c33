"""Callbacks, Trainers and steps that stand in other files than what starts them.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files

LIGHTNING = """\
import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
"""
MODULE = """\
class Net(pl.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, 2)
    def training_step(self, batch, number):
        return self.layer(batch[0]).sum()
"""
TRAINER = """\
import torch
from torch.utils.data import DataLoader
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments
"""
STARTED = """\
def _mp_fn(index):
    main()
"""
FABRIC = """\
import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy, XLAFSDPStrategy, XLAStrategy
"""
#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA101 XLA102 XLA104: callbacks of Lightning": f"""\
{LIGHTNING}
{MODULE}
class Watch(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.total += outputs["loss"].item()  # !XLA101
        for p in pl_module.parameters():
            self.norm += p.grad.norm().item()  # !XLA101
        if torch.isnan(outputs["loss"]):  # !XLA104
            trainer.should_stop = True
        seen = float(trainer.callback_metrics["loss"])  # !XLA102
        width = batch[0].size(1)
    def on_train_epoch_end(self, trainer, pl_module):
        self.history.append(trainer.callback_metrics["loss"].item())
class Slow:
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.total += outputs["loss"].item()
trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Watch()])
""",
    "XLA109: what a progress bar shows, asked for on each batch": f"""\
{LIGHTNING}
{MODULE}
class Bar(TQDMProgressBar):
    def get_metrics(self, trainer, model):
        items = super().get_metrics(trainer, model)
        items.pop("v_num", None)
        return items
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        shown = self.get_metrics(trainer, pl_module)  # !XLA109
        if batch_idx % 50 == 0:
            self.show(self.get_metrics(trainer, pl_module))
class Keeps(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.last = trainer.progress_bar_metrics["loss"]  # !XLA109
    def on_train_epoch_end(self, trainer, pl_module):
        self.last = trainer.progress_bar_metrics["loss"]
trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Bar(), Keeps()])
""",
    "XLA101: a callback of transformers": f"""\
{TRAINER}
class Norms(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        for p in model.parameters():
            if p.grad is not None:
                self.norms.append(p.grad.norm().item())  # !XLA101
    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        self.weights = [p.norm().item() for p in model.parameters()]
def main():
    Trainer(model, TrainingArguments("out"), callbacks=[Norms()]).train()
{STARTED}""",
    "XLA910 XLA901: hooks that nothing calls, parameters, attributes and names that are gone": f"""\
{LIGHTNING}
from pytorch_lightning.callbacks.progress import ProgressBarBase  # !XLA901
from pytorch_lightning.logging.test_tube import TestTubeLogger  # !XLA901
class Net(pl.LightningModule):
    use_amp = False
    def training_step(self, batch, number, optimizer_idx):  # !XLA910
        if self.trainer.use_tpu:  # !XLA910
            self.cores = self.trainer.tpu_cores  # !XLA910
        if self.use_ddp or self.use_amp:  # !XLA910
            return self.layer(batch).mean()
        return self.layer(batch).sum()
    def on_epoch_end(self):  # !XLA910
        self.seen = 0
    def optimizer_step(self, epoch, number, optimizer, optimizer_idx, closure):  # !XLA910
        optimizer.step(closure)
class Watch(Callback):
    def on_train_batch_end(
        self, trainer, pl_module, outputs, batch, number, dataloader_idx  # !XLA910
    ):
        self.rates = trainer.lr_schedulers  # !XLA910
class Fine(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, number, dataloader_idx=0):
        self.on_batch_end()
    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, number, dataloader_idx):
        self.cores = trainer.num_devices
    def on_batch_end(self):
        self.use_tpu = trainer_of(self).strategy
class Meter:
    def on_epoch_end(self, trainer):
        return trainer.use_tpu
trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Watch(), Fine()])
trainer.tune(Net())  # !XLA910
""",
    "XLA905: what transformers takes, has and calls no more": f"""\
{TRAINER}
class Smooth(Trainer):
    def __init__(self, smoothing=0.0, **kwargs):
        super().__init__(**kwargs)
    def _training_step(self, model, inputs, optimizer):  # !XLA905
        return super()._training_step(model, inputs, optimizer)
class Own(Trainer):
    def __init__(self, prediction_loss_only, **kwargs):
        super().__init__(**kwargs)
    def _log(self, logs):
        self.kept = logs
    def compute_loss(self, model, inputs, **kwargs):
        self._log({{}})
        return model(**inputs)[0]
def main():
    args, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    if args.tpu_num_cores is not None:  # !XLA905
        args.output_dir = "tpu"
    trainer = Smooth(args=args, prediction_loss_only=True)  # !XLA905
    other = Own(args=args, prediction_loss_only=True)
    trainer.train(model_path="out")  # !XLA905
    other.train(resume_from_checkpoint="out")
{STARTED}""",
    "XLA303 XLA106: Fabric clips by a norm that it checks, and reduces later": f"""\
{FABRIC}
def setup(devices: int = 8, tpu: bool = False):
    if tpu:
        devices = "auto"
        strategy = XLAStrategy()
    else:
        strategy = FSDPStrategy()
    fabric = L.Fabric(devices=devices, strategy=strategy)
    fabric.launch(main)
def main(fabric, net, adam, batches):
    net, adam = fabric.setup(net, adam)
    for batch in fabric.setup_dataloaders(batches):
        fabric.backward(net(batch).sum())
        fabric.clip_gradients(net, adam, max_norm=1.0)  # !XLA303 !XLA106
        adam.step()
        adam.zero_grad()
""",
    "XLA101 XLA423: what Fabric logs and reduces on each step": f"""\
{FABRIC}
fabric = L.Fabric(accelerator="tpu", devices=8)
def main(fabric, net, adam, batches):
    net, adam = fabric.setup(net, adam)
    for step, batch in enumerate(fabric.setup_dataloaders(batches)):
        loss = net(batch).sum()
        fabric.backward(loss)
        adam.step()
        fabric.log("loss", loss)  # !XLA101
        fabric.log_dict({{"loss": loss, "step": step}})  # !XLA101
        mean = fabric.all_reduce(loss)  # !XLA423
        fabric.log("rate", adam.param_groups[0]["lr"])
        if step % 50 == 0:
            fabric.log("loss", loss)
    fabric.log("last", fabric.all_reduce(loss))
fabric.launch(main)
""",
    "XLA901: precisions behind the condition that chooses them": f"""\
{LIGHTNING}
def main(net, fp16=False, tpu=True):
    settings = dict(accelerator="tpu", devices=8)
    if fp16:
        settings["precision"] = 16 if fp16 else 32  # !XLA901
    trainer = pl.Trainer(**settings)
    others = dict(accelerator="tpu", devices=8)
    if not fp16:
        others["precision"] = "16-mixed" if fp16 else "32-true"
    return trainer, pl.Trainer(**others)
""",
    "XLA101: what Lightning's modules log is no read": f"""\
{LIGHTNING}
class Net(pl.LightningModule):
    def training_step(self, batch, number):
        loss = self.layer(batch[0]).sum()
        self.log("loss", loss)
        self.log_dict({{"same": loss}})
        self.logger.experiment.add_scalar("loss", loss, number)  # !XLA101
        return loss
trainer = pl.Trainer(accelerator="tpu", devices=8)
""",
    "XLA106: shards of weights have reduced gradients when Fabric clips": f"""\
{FABRIC}
fabric = L.Fabric(accelerator="tpu", devices=8, strategy=XLAFSDPStrategy())
def train(net, adam, batches):
    for batch in fabric.setup_dataloaders(batches):
        fabric.backward(net(batch).sum())
        fabric.clip_gradients(net, adam, max_norm=1.0)  # !XLA106
        fabric.clip_gradients(net, adam, max_norm=1.0, error_if_nonfinite=False)
        fabric.clip_gradients(net, adam, clip_val=1.0)
        adam.step()
""",
    "XLA303: Fabric on one core, and gradients that are reduced before": f"""\
{FABRIC}
import torch_xla.core.xla_model as xm
fabric = L.Fabric(accelerator="tpu", devices=1)
def train(net, adam, batches):
    for batch in fabric.setup_dataloaders(batches):
        fabric.backward(net(batch).sum())
        fabric.clip_gradients(net, adam, max_norm=1.0, error_if_nonfinite=False)
        adam.step()
""",
    "XLA113: what an evaluation gave is no part of the step": f"""\
{FABRIC}
fabric = L.Fabric(accelerator="tpu", devices=8)
def train(net, adam, batches, others):
    others = fabric.setup_dataloaders(torch.utils.data.DataLoader(others))
    for step, batch in enumerate(fabric.setup_dataloaders(batches)):
        loss = net(batch).sum()
        fabric.backward(loss)
        adam.step()
        if step % 100 == 0:
            error = validate(net, others)
            fabric.print(f"{{error.item():.3f}}")
            picture = draw(net)
            fabric.print(f"{{picture.mean().item():.3f}}")  # !XLA113
@torch.no_grad()
def validate(net, others):
    net.eval()
    total = torch.zeros((), device=fabric.device)
    for batch in others:
        total += net(batch).mean()
    net.train()
    return total
@torch.no_grad()
def draw(net):
    x = torch.randn(4, 4, device=fabric.device)
    for _ in range(20):
        x = net(x)
    return x
""",
    "XLA209: collators given to Trainers, and loaders of the program's own": f"""\
{TRAINER}
class Texts:
    def __call__(self, rows):
        longest = max(len(row["ids"]) for row in rows)  # !XLA209
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row["ids"])] = torch.tensor(row["ids"])
        return {{"input_ids": ids, "labels": ids}}
class Waves(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.collate_fn = waves
class Sounds(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, collate_fn=sounds, **kwargs)
def length_of(row):
    return len(row[0])
def waves(rows):
    longest = max(rows, key=length_of)[0]
    channels = longest.size(1)
    length = longest.size(0)  # !XLA209
    batch = torch.zeros(len(rows), length, channels)
    for i, (wave, _) in enumerate(rows):
        batch[i].narrow(0, 0, wave.size(0)).copy_(wave)
    return batch
def sounds(rows):
    n = max(row.size(0) for row in rows)  # !XLA209
    return torch.stack([torch.nn.functional.pad(row, (0, n - row.size(0))) for row in rows])
def report(rows):
    return torch.zeros(max(len(row) for row in rows))
def main(data):
    Trainer(model, TrainingArguments("out"), data_collator=Texts()).train()
    return Waves(data), Sounds(data)
{STARTED}""",
    "XLA401 XLA406: what every core runs of a callback, and what only the first process runs": f"""\
{LIGHTNING}
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.rank_zero import rank_zero_only as first_only
class Net(pl.LightningModule):
    def training_step(self, batch, number):
        self.show("step")
        return self.layer(batch).sum()
    def on_train_epoch_end(self):
        print("epoch")  # !XLA401
        self.keep()
    @rank_zero_only
    def show(self, text):
        print(text)
    @first_only
    def keep(self):
        torch.save(self.state_dict(), "net.pt")
class Watch(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        print("done")  # !XLA401
        torch.save(pl_module.state_dict(), "net.pt")  # !XLA406
        if trainer.is_global_zero:
            print("first")
    @rank_zero_only
    def on_train_end(self, trainer, pl_module):
        print("done")
        torch.save(pl_module.state_dict(), "net.pt")
trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Watch()])
""",
    "XLA401: functions that Accelerate runs on one process": """\
import torch_xla
from accelerate import Accelerator
accelerator = Accelerator()
@accelerator.on_main_process
def show(text):
    print(text)
def main(index):
    show("done")
    print("each")  # !XLA401
torch_xla.launch(main)
""",
    "XLA405: a meeting that only the first process comes to": f"""\
{LIGHTNING}
from lightning.pytorch.utilities import rank_zero_only
{MODULE}
class Keeps(Callback):
    @rank_zero_only
    def on_train_epoch_end(self, trainer, pl_module):
        trainer.save_checkpoint("net.ckpt")  # !XLA405
    @rank_zero_only
    def on_train_end(self, trainer, pl_module):
        self.last = trainer.current_epoch
trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Keeps()])
""",
    "XLA206: a module of Lightning's that writes for a callback": f"""\
{LIGHTNING}
def as_in_tests(function):
    def inner(model, *args):
        was = model.training
        model.eval()
        out = function(model, *args)
        model.train(was)
        return out
    return inner
class Writer(pl.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.emb = torch.nn.Embedding(100, width)
        self.head = torch.nn.Linear(width, 100)
    def forward(self, ids):
        return self.head(self.emb(ids))
    @torch.no_grad()
    @as_in_tests
    def write(self, text, length):
        out = text[:, :8]
        for _ in range(out.shape[1], length):
            drawn = torch.multinomial(self(out)[:, -1].softmax(-1), 1)
            out = torch.cat((out, drawn), dim=-1)  # !XLA206
        return out
class Show(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % 1000 == 0:
            pl_module.write(batch[0][:1], 128)
trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Show()])
""",
    "XLA604: one number as often as the batch is long": """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl
class Decoder(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.start = start
        self.emb = nn.Embedding(10, 4)
    def forward(self, x, lengths):
        first = torch.LongTensor([self.start] * x.size(0)).to(x.device)  # !XLA604
        none = torch.tensor(len(x) * [0]).to(x.device)  # !XLA604
        last = torch.tensor([lengths[0]] * len(x)).to(x.device)
        there = torch.full((x.size(0),), self.start, device=x.device)
        return self.emb(first + none + there) + last
def train(batches, adam):
    device = torch_xla.device()
    net = Decoder(1).to(device)
    for x, lengths in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x, lengths).sum().backward()
        adam.step()
""",
}
#: Healthy programs, in which none of these rules may find anything.
ASKED = frozenset(
    {"XLA101", "XLA102", "XLA104", "XLA106", "XLA109", "XLA113", "XLA206", "XLA209", "XLA303",
     "XLA401", "XLA405", "XLA406", "XLA901", "XLA910"}
)  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_frameworks_call_is_known(name):
    program = PROGRAMS[name]
    asked = set(name.partition(":")[0].split())
    assert {(row, code) for row, code in found(program) if code in asked} == {
        (row, code) for row, code in marks(program) if code in asked
    }


def test_without_xla_none_of_it_is_told():
    for program in PROGRAMS.values():
        plain = (
            program.replace('accelerator="tpu"', 'accelerator="gpu"')
            .replace("_mp_fn", "run")
            .replace("XLAFSDPStrategy", "FSDPStrategy")
            .replace("XLAStrategy", "DDPStrategy")
            .replace("import torch_xla.core.xla_model as xm", "")
            .replace("tpu_cores", "num_nodes")
            .replace("tpu_num_cores", "world_size")
            .replace('"tpu"', '"out"')
            .replace("trainer.use_tpu", "trainer.use_ddp")
        )
        if "torch_xla" not in plain:
            assert [row for row in found(plain) if row[1] in ASKED] == []


def _lint(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    results = lint_files(
        [folder / f"{name}.py" for name in files], Plan(engine.LintOptions()), jobs=1
    )
    return {
        (item.filename.rpartition("/")[2], one.locations[0].row, one.code)
        for item in results
        for one in item.result.findings
    }


def _marked(**files):
    return {(f"{name}.py", row, code) for name, text in files.items() for row, code in marks(text)}


RUN = """\
from transformers import HfArgumentParser, TrainingArguments
from smooth import Smooth
def main():
    args, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    trainer = Smooth(model=load(args), args=args)
    trainer.train()
    if args.do_eval and args.local_rank in [-1, 0]:
        trainer.evaluate()  # !XLA405
    if trainer.is_local_process_zero():
        trainer.predict(texts)  # !XLA405
        trainer.report()
    trainer.evaluate()
"""
SMOOTH = """\
import torch
from transformers import Trainer as HfTrainer
class Smooth(HfTrainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        labels = inputs.pop("labels")
        labels[labels == -100] = 0  # !XLA204
        loss = model(**inputs)[0]
        loss.backward()
        return loss.item()  # !XLA101
    def report(self):
        return {"loss": self.loss}
"""


def test_a_trainer_of_another_file_runs_on_the_devices(tmp_path):
    run = f"{RUN}{STARTED}"
    told = _lint(tmp_path, run=run, smooth=SMOOTH)
    asked = {one for one in told if one[2] in {"XLA101", "XLA204", "XLA405"}}
    assert asked == _marked(run=run, smooth=SMOOTH)
    # Nothing starts it on XLA devices.
    assert _lint(tmp_path, run=RUN, smooth=SMOOTH) == set()


SETTINGS = """\
import argparse
import torch_xla.runtime as xr
from lightning.pytorch import Trainer
from net import Net
parser = argparse.ArgumentParser()
parser.add_argument("--use_tpus", action="store_true")
parser.add_argument("--tpus", type=int, default={cores})
args = parser.parse_args()
if args.use_tpus:
    tpus = args.tpus
    world = xr.world_size()  # !XLA407
else:
    tpus = None
    world = 1
if args.use_tpus:
    trainer = Trainer(accelerator="tpu", devices=tpus)
else:
    trainer = Trainer(devices=1)
trainer.fit(Net(world))
"""
NET = """\
import lightning.pytorch as pl
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
class Net(pl.LightningModule):
    def __init__(self, world):
        super().__init__()
        self.layer = torch.nn.Linear(world, 2)
    def validation_step(self, batch, number):
        loss = self.layer(batch[0]).sum()
        self.log("loss", loss)  # !XLA427 !XLA419
        self.log("same", loss, sync_dist=True)
    def configure_optimizers(self):
        adam = torch.optim.Adam(self.parameters())
        plan = {"scheduler": ReduceLROnPlateau(adam), "monitor": "loss"}
        return [adam], [plan]
"""


@pytest.mark.parametrize("cores", [8, 1])
def test_several_cores_behind_a_setting_are_several(tmp_path, cores):
    train = SETTINGS.format(cores=cores)
    told = _lint(tmp_path, train=train, net=NET)
    asked = {one for one in told if one[2] in {"XLA407", "XLA419", "XLA427"}}
    assert asked == (_marked(train=train, net=NET) if cores > 1 else set())
