"""Real runs of what people train with besides plain loops: frameworks and SPMD.

The frameworks are no dependency of xladoctor: ``make test`` installs the extra ``frameworks``.
Without them their tests are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from test_profile_xla import profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

ROOT = Path(__file__).resolve().parents[2]


def needs(framework: str) -> pytest.MarkDecorator:
    """Skip without the framework; found and not imported, which takes seconds and may warn."""
    return pytest.mark.skipif(
        importlib.util.find_spec(framework) is None, reason=f"needs {framework}"
    )


#: Two cores share 48 rows in batches of 4: 6 steps in each of 2 epochs.
STEPS = 12

LIGHTNING = """\
import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def loss(self, batch):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def data(rows):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=4, drop_last=True)


if __name__ == "__main__":
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="tpu", devices="auto", max_epochs=2, enable_progress_bar=False,
        callbacks=[ModelCheckpoint(monitor="val_loss", dirpath="kept", filename="best")],
        logger=CSVLogger(".", name="logs", version=0),
    )
    trainer.fit(Model(), data(48), data(16))
"""

ACCELERATE = """\
import torch
import torch_xla
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main(index):
    torch.manual_seed(0)
    accelerator = Accelerator()
    x = torch.randn(48, 8, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, 3 * x[:, :1]), batch_size=4, drop_last=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        total = torch.zeros(1).to(accelerator.device)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.gather(total).mean().item()
        accelerator.print(f"cores {accelerator.num_processes} epoch {epoch} loss {mean:.4f}")
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    torch_xla.launch(main)
"""

TRAINER = """\
import torch
import torch_xla
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.words = torch.randint(0, 50, (rows, 12), generator=torch.Generator().manual_seed(rows))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, at):
        words = self.words[at]
        return {"input_ids": words, "attention_mask": torch.ones_like(words),
                "labels": int(words[0] > 25)}


def main(index):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=16)
    arguments = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=4,
        eval_strategy="epoch", logging_steps=6, save_strategy="epoch", report_to=[],
        disable_tqdm=True, dataloader_drop_last=True, learning_rate=0.01,
        optim="adamw_torch",  # the default, adamw_torch_fused, refuses XLA tensors
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments,
                      train_dataset=Data(48), eval_dataset=Data(16))
    trainer.train()
    if index == 0:
        print("steps", trainer.state.global_step)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


def on_cores(cores: int, folder, program: str) -> tuple[str, dict]:
    """What the program printed on simulated cores, and the report."""
    (folder / "train.py").write_text(program)
    words = ("-o", "run", "--output-format", "json", "--output-file", "report.json", "--")
    done = profile(
        folder, "--simulate-cores", str(cores), *words, sys.executable, "-W", "ignore", "train.py"
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report = json.loads((folder / "report.json").read_text())
    assert [note for note in report["notes"] if "not measured" in note.lower()] == []
    return done.stdout, report


def compiled_late(report: dict) -> list[dict]:
    """Graphs of the program that were new after warm-up.

    What the cores exchange (a checkpoint's file name) may grow by a letter: that is no fault.
    """
    late = [item for item in report["compilations"] if item["after_warmup"]]
    return [item for item in late if not item["modelled"]]


def assert_sound(report: dict) -> None:
    """It has trained as one: every core the same number of steps, and the same weights."""
    summary = report["summary"]
    assert (summary["cores"], summary["steps"]) == (2, STEPS)
    assert [core["steps"] for core in report["cores"]] == [STEPS, STEPS]
    assert compiled_late(report) == []
    assert summary["fallbacks"] == {}
    assert [found for found in report["findings"] if found["severity"] == "error"] == []


@needs("lightning")
def test_lightning_with_all_cores_fits_validates_logs_and_keeps_a_checkpoint(tmp_path):
    _, report = on_cores(2, tmp_path, LIGHTNING)
    assert_sound(report)
    rows = (tmp_path / "logs" / "version_0" / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("val_loss")
    losses = [float(row.split(",")[column]) for row in rows[1:] if row.split(",")[column]]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert (tmp_path / "kept" / "best.ckpt").is_file()
    # No line of the user's ends the step's graph: the report names Lightning's function that does.
    hooks = {one["via"] for one in report["compilations"] if one["trigger"] == "step"}
    assert hooks
    assert all(via is not None and via.startswith("lightning.") for via in hooks), hooks


@pytest.mark.slow
@needs("lightning")
def test_lightning_sample_trains_on_eight_cores(tmp_path):
    words = ("-o", "run", "--output-format", "json", "--output-file", "report.json", "--")
    program = str(ROOT / "sample_runs" / "lightning_tpu" / "treated.py")
    done = profile(
        tmp_path, "--simulate-cores", "8", *words, sys.executable, "-W", "ignore", program,
        "--small",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report = json.loads((tmp_path / "report.json").read_text())
    # 640 signals for 8 cores in batches of 16: 5 steps in each of 2 epochs.
    assert [core["steps"] for core in report["cores"]] == [10] * 8
    # Lightning reduces all that is logged from one line: that line may meet new graphs in the first
    # epoch, but in the second everything is known.
    assert [item for item in compiled_late(report) if item["step"] > 5] == []
    assert report["summary"]["fallbacks"] == {}
    assert [found for found in report["findings"] if found["severity"] == "error"] == []
    assert re.search(r"best: \S+\.ckpt", done.stdout)


@needs("accelerate")
def test_accelerate_gathers_clips_prints_once_and_saves(tmp_path):
    printed, report = on_cores(2, tmp_path, ACCELERATE)
    assert_sound(report)
    losses = re.findall(r"cores 2 epoch \d loss ([\d.]+)", printed)
    assert len(losses) == 2
    assert float(losses[1]) < float(losses[0])
    assert (tmp_path / "model.pt").is_file()


@pytest.mark.slow
@needs("transformers")
@needs("accelerate")
def test_trainer_of_transformers_trains_evaluates_and_saves(tmp_path):
    printed, report = on_cores(2, tmp_path, TRAINER)
    assert_sound(report)
    assert f"steps {STEPS}" in printed
    assert list((tmp_path / "out").glob(f"checkpoint-{STEPS}/*"))


def reads_of_frameworks(report: dict, program: str, mark: str) -> dict[str, str]:
    """Where in a framework it reads, to what to change; each at the line with ``mark``."""
    reads = [found for found in report["findings"] if found["code"] == "XLA101"]
    row = next(at for at, line in enumerate(program.splitlines(), 1) if mark in line)
    places = {(at["filename"], at["row"]) for found in reads for at in found["locations"]}
    assert places == {("train.py", row)}
    inside = [at for found in reads for at in found["related"]]
    assert inside
    assert all("site-packages" in at["filename"] and at["message"] for at in inside)
    return {found["suggestion"]: found["related"][0]["message"] for found in reads}


@needs("lightning")
def test_a_read_of_lightning_stands_at_the_users_line_with_the_setting_to_change(tmp_path):
    """Cores that Lightning starts have no line of the user in their stacks at all."""
    program = LIGHTNING.replace("on_step=False, on_epoch=True, sync_dist=True", "prog_bar=True")
    program = program.replace("max_epochs=2", "log_every_n_steps=1, max_epochs=2")
    _, report = on_cores(2, tmp_path, program)
    told = reads_of_frameworks(report, program, "trainer.fit(")
    assert set(told.values()) == {"in lightning"}
    settings = " ".join(told)
    assert "prog_bar=False" in settings
    assert "log_every_n_steps=50" in settings


@needs("transformers")
@needs("accelerate")
@pytest.mark.slow
def test_a_read_of_the_trainer_stands_at_the_users_line_with_the_setting_to_change(tmp_path):
    program = TRAINER.replace("logging_steps=6", "logging_steps=1")
    _, report = on_cores(2, tmp_path, program)
    told = reads_of_frameworks(report, program, "trainer.train()")
    assert set(told.values()) == {"in transformers"}
    settings = " ".join(told)
    assert "logging_steps=50" in settings
    assert "attention_mask" in settings


# -- SPMD: one process, N virtual devices ----------------------------------------------------------
SPMD = """\
import json
import sys

import numpy as np
import torch
import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn

kind = sys.argv[1]
if kind != "one":
    xr.use_spmd()
device = torch_xla.device()
draw = torch.Generator().manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
for parameter in model.parameters():
    nn.init.normal_(parameter, 0, 0.2, generator=draw)
model = model.to(device)
if kind != "one":
    devices = xr.global_runtime_device_count()
    assert devices == 4, devices
    mesh = xs.Mesh(np.arange(devices), (devices, 1), ("fsdp", "model"))
if kind == "fsdp":
    from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
        SpmdFullyShardedDataParallel,
    )

    model = SpmdFullyShardedDataParallel(
        model, mesh=mesh, shard_output=lambda out, mesh: xs.mark_sharding(out, mesh, ("fsdp", None))
    )
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(9):
    x = torch.randn(8 if step == 8 else 16, 16, generator=draw).to(device)
    if kind != "one":
        xs.mark_sharding(x, mesh, ("fsdp", None))  # line SHARDED
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    torch_xla.sync()  # line STEP
    losses.append(loss.item())  # line READ
    if step == 3:
        torch.bincount(x[0].abs().long().clamp(max=3), minlength=4)  # line FALLBACK
json.dump([losses, met.counter_value("UncachedCompile")], open(f"{kind}.json", "w"))
"""


def spmd(folder, kind: str, *simulate: str) -> tuple[list[float], dict]:
    """The losses and the report of one way to shard."""
    (folder / "train.py").write_text(SPMD)
    done = profile(
        folder, *simulate, "-o", f"run-{kind}", "--output-format", "json", "--output-file",
        f"{kind}-report.json", "--", sys.executable, "-W", "ignore", "train.py", kind,
        PJRT_DEVICE="CPU", CPU_NUM_DEVICES="4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    losses, compiled = json.loads((folder / f"{kind}.json").read_text())
    report = json.loads((folder / f"{kind}-report.json").read_text())
    assert report["summary"]["compilations"] == compiled
    return losses, report


@pytest.fixture(scope="module")
def one_device(tmp_path_factory) -> list[float]:
    return spmd(tmp_path_factory.mktemp("one"), "one")[0]


@pytest.mark.parametrize(
    ("kind", "compilations", "simulate"),
    [
        # The step for 16 rows and for 8, and the graph that bincount cuts out. The weights come
        # out of the first step with a sharding that they did not go in with: its graph again.
        ("data", 4, ("--simulate-cores", "4")),
        # Wrapped by FSDPv2 they have their sharding from the start.
        ("fsdp", 3, ()),
    ],
)
def test_spmd_counts_and_trains_as_one_device_does(
    tmp_path, one_device, kind, compilations, simulate
):
    losses, report = spmd(tmp_path, kind, *simulate)
    assert losses == pytest.approx(one_device, rel=1e-5)
    summary = report["summary"]
    assert (summary["cores"], summary["steps"], summary["host_syncs"]) == (1, 9, 9)
    assert summary["fallbacks"] == {"aten::bincount": 1}
    assert (summary["compilations"], summary["compilations_after_warmup"]) == (compilations, 1)
    line = {
        mark: next(
            n for n, text in enumerate(SPMD.splitlines(), 1) if text.endswith(f"line {mark}")
        )
        for mark in ("STEP", "READ", "FALLBACK", "SHARDED")
    }
    found = {one["code"]: one for one in report["findings"]}
    assert found["XLA101"]["locations"][0]["row"] == line["READ"]
    assert found["XLA501"]["locations"][0]["row"] == line["FALLBACK"]
    # No loader makes the shorter batch: XLA203 would blame one that is not there.
    (late,) = [
        one
        for one in report["findings"]
        if one["code"].startswith("XLA2") and "runtime" in one["confirmed_by"]
    ]
    assert late["code"] != "XLA203"
    # torch_xla sends a tensor anew when its sharding is told: that is where the input comes from.
    assert late["locations"][0]["row"] == line["SHARDED"]
    assert line["STEP"] in {place["row"] for place in late["related"]}
    assert [one for one in report["findings"] if one["severity"] == "error"] == []
