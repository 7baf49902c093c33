"""The sample programs: what an expert sees in them, what lint finds, and how the treated ones run.

The expectations were written by reading the programs, before the linter could.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_runs"


@dataclasses.dataclass(frozen=True)
class Expected:
    """A finding that an expert expects.

    Attributes:
        code: The rule.
        at: Pieces of source lines; the finding belongs on one of the lines that hold one of them.
            A finding about something that is missing can rightly be put on more than one line.
    """

    code: str
    at: tuple[str, ...]


def must(code: str, *at: str) -> list[Expected]:
    """One expectation for each piece of source."""
    return [Expected(code, (piece,)) for piece in at]


def either(code: str, *at: str) -> list[Expected]:
    """One expectation that any of the pieces of source satisfies."""
    return [Expected(code, at)]


@dataclasses.dataclass(frozen=True)
class Reading:
    """What an expert says about one program.

    Attributes:
        must: What has to be found.
        may: What is right to report and right not to.
    """

    must: list[Expected]
    may: list[Expected] = dataclasses.field(default_factory=list)


READINGS = {
    "kfold_images/as_found.py": Reading(
        must=[
            *must("XLA701", 'os.environ["XLA_USE_BF16"]', 'os.environ["XRT_TPU_CONFIG"]'),
            *must("XLA303", "clip_grad_norm_(model.parameters(), Config.max_norm)"),
            *must("XLA101", "running_loss += loss.item()", "correct += (outputs.argmax(1)"),
            *must("XLA401", 'print(f"fold {fold}'),
            *must("XLA801", "trn_sampler = Distr", "val_sampler = Distr", "lr=Config.lr * xm.xrt"),
            *must("XLA802", "device = xm.xla_device()"),
            *either("XLA403", "for epoch in range(Config.epochs)", "trn_sampler = Distr"),
            *must("XLA404", "nprocs=8"),
            *must("XLA405", 'xm.mesh_reduce("val_acc"'),
            *must("XLA406", "torch.save(model.state_dict()"),
            # A NumPy mean does not come through torch.load, with which mesh_reduce reads it.
            *must("XLA417", 'xm.mesh_reduce("val_acc"'),
            # Only the master has the reduced accuracy, so the cores' learning rates part.
            *must("XLA419", "scheduler.step(acc)"),
            *must("XLA721", "torch.save(model.state_dict()"),
        ],
        may=[
            # Reads in an evaluation loop: fewer, but waits all the same.
            *must("XLA101", "all_preds.append(", "all_targets.append("),
            # Eight lines, and none says whose; but each core's time is its own.
            *must("XLA401", 'print("epoch took"'),
            # The last batch of an evaluation is another shape, once.
            *must("XLA203", "val_loader = DataLoader("),
            *must("XLA810", "pl.ParallelLoader(trn_loader", "pl.ParallelLoader(val_loader"),
            # The seed does not reach the device's generator: it matters to who wants it to.
            *must("XLA313", "torch.manual_seed(seed)"),
        ],
    ),
    "unet_mask_depth/as_found_1core.py": Reading(
        must=[
            *must("XLA802", "device = xm.xla_device()"),
            *either("XLA301", "for image, mask, depth in train_loader", "optimizer.step()"),
            *must("XLA203", "train_loader = DataLoader("),
            *must("XLA315", "total_loss += loss"),
            *must("XLA603", "image = image.to(device)"),
            *must("XLA721", "torch.save(model.state_dict()"),
        ],
        # The backward pass of bilinear upsampling runs on the host; hard to see before the run.
        may=must("XLA501", "nn.Upsample("),
    ),
    "unet_mask_depth/as_found.py": Reading(
        must=[
            *must("XLA801", "print(f'[{xm.get_ordinal()}]"),
            *must("XLA802", "device = xm.xla_device()"),
            *must("XLA202", "F.l1_loss(pred_depth[known]"),
            *must("XLA501", "torch.bincount("),
            *must("XLA104", "if torch.isnan(loss)"),
            *must("XLA302", "optimizer.step()"),
            *must("XLA102", "total_loss += float(loss)"),
            *must("XLA103", "bar.set_postfix("),
            *must("XLA402", "train_loader = DataLoader("),
            *must("XLA203", "train_loader = DataLoader("),
            *must("XLA401", "print('nan loss"),
            *must("XLA404", "nprocs=8"),
            *must("XLA405", "xm.mesh_reduce('valid_loss'", "xm.rendezvous('saved')"),
            *must("XLA417", "xm.mesh_reduce('valid_loss'"),
        ],
        may=[
            *must("XLA313", "torch.manual_seed(flags['seed'])"),
            *must("XLA501", "nn.Upsample("),
            *must("XLA101", "losses.append(criterion("),
            *must("XLA810", "pl.ParallelLoader(train_loader", "pl.ParallelLoader(valid_loader"),
            *must("XLA402", "valid_loader = DataLoader("),
            *must("XLA203", "valid_loader = DataLoader("),
            # Since torch_xla 2.1 xm.save holds no barrier, but only core 0 decides and writes.
            *must("XLA405", "xm.save(model.state_dict()"),
            # It says which core speaks, so speaking on every core is on purpose.
            *must("XLA401", "print(f'[{xm.get_ordinal()}]"),
            *must("XLA401", "bar = tqdm(loader)", "print(met.metrics_report())"),
        ],
    ),
    "ct_slices/as_found.py": Reading(
        must=[
            *must("XLA424", "mx.to(device)"),
            *must("XLA804", "torch_xla.distributed.data_parallel"),
            *must("XLA701", "os.environ['XLA_USE_BF16']", "os.environ['XLA_TENSOR_ALLOCATOR"),
            *must("XLA101", "trn_loss_meter.update(loss.detach().item()"),
            *must("XLA401", "print(f'epoch {epoch} batch", "print(f'epoch {epoch} valid"),
            *must("XLA401", "print('train batches'"),
            *must("XLA801", "train_ds, num_replicas=xm.xrt", "valid_ds, num_replicas=xm.xrt"),
            *must("XLA802", "device = xm.xla_device()"),
            *must("XLA203", "train_dl = DataLoader("),
            *must("XLA404", "nprocs=8"),
            *must("XLA405", "xm.save(model.state_dict()"),
            *must("XLA406", "np.save('trn_losses.npy'", "np.save('val_losses.npy'"),
            *must("XLA111", "gc.collect()"),
            *must("XLA424", "mx.to(device)"),
            *must("XLA604", "weights = torch.tensor([1., 1., 1., 1., 1., 2.]"),
        ],
        may=[
            # A device loader ends the step already.
            *must("XLA304", "xm.optimizer_step(optimizer, barrier=True)"),
            *must("XLA313", "torch.manual_seed(seed)"),
            *must("XLA101", "val_loss_meter.update(", "preds = torch.sigmoid(", "hits += ("),
            *must("XLA203", "valid_dl = DataLoader("),
            *must("XLA802", "torch_xla.distributed.data_parallel"),
            # Old style; a new one is made in every epoch, as it should be.
            *must("XLA810", "pl.ParallelLoader(train_dl", "pl.ParallelLoader(valid_dl"),
            *must("XLA718", "num_workers=CFG.num_workers, pin_memory=True)"),
        ],
    ),
    "lightning_tpu/as_found.py": Reading(
        must=[
            *must("XLA903", "return None", "self.log('train_loss'", "self.log('train_acc'"),
            *must("XLA705", "np.random.randn(*x.shape)"),
            *must("XLA701", "os.environ['XLA_USE_BF16']"),
            *must("XLA407", "device = xm.xla_device()"),
            *must("XLA802", "device = xm.xla_device()"),
            *must("XLA910", "def optimizer_step(self"),
            *must("XLA203", "return DataLoader(GestureDataset(CFG.n_train, 1)"),
            *must("XLA209", "longest = max("),
            *must("XLA101", "acc = (logits.argmax(1)"),
            *must("XLA104", "if torch.isnan(loss)"),
            *must("XLA401", "print('step', batch_idx"),
            *must("XLA406", "np.save('val_preds.npy'"),
            *must("XLA427", "self.log('val_loss'", "self.log('val_acc'"),
            *either("XLA901", "precision=16", "trainer = pl.Trainer("),
            *either("XLA901", "progress_bar_refresh_rate=1", "trainer = pl.Trainer("),
            *either("XLA901", "weights_summary='top'", "trainer = pl.Trainer("),
            *either("XLA901", "checkpoint_callback=True", "trainer = pl.Trainer("),
            *must("XLA902", "xm.optimizer_step(optimizer)", "x = x.to(device)"),
            *must(
                "XLA910",
                "def training_epoch_end",
                "def validation_epoch_end",
                "EarlyStopping, XLAStatsMonitor",
            ),
        ],
        may=[
            *must("XLA101", "print('step', batch_idx", "return {'val_loss'"),
            *must("XLA401", "print('train loss'"),
            *must("XLA203", "return DataLoader(GestureDataset(CFG.n_valid, 2)"),
        ],
    ),
    "ct_slices/runnable.py": Reading(
        must=[
            *must("XLA101", "trn_loss_meter.update(loss.detach().item()"),
            *must("XLA101", "positive_meter.update("),
            *must("XLA202", "positive_meter.update("),
            *must("XLA501", "torch.bincount("),
            *must("XLA401", "print(f'epoch {epoch} batch"),
            *must("XLA604", "weights = torch.tensor([1., 1., 1., 1., 1., 2.]"),
            *must("XLA203", "train_dl = DataLoader("),
            *must("XLA427", "xm.master_print(f'epoch {epoch} valid loss"),
        ],
        may=[
            *must("XLA101", "val_loss_meter.update(", "preds = torch.sigmoid(", "hits += ("),
            *must("XLA203", "valid_dl = DataLoader("),
            *must("XLA313", "torch.manual_seed(flags.seed)"),
        ],
    ),
}

#: The larger ones are trained before a release (``make test-slow``).
LARGER = [pytest.param(name, marks=pytest.mark.slow) for name in ("unet_mask_depth", "ct_slices")]
SOON = ["kfold_images", *LARGER]
TREATED = ["kfold_images", "unet_mask_depth", "ct_slices", "lightning_tpu"]


def lint(*paths: str) -> list[dict]:
    """Findings of ``xladoctor lint`` on paths below ``sample_runs``, in the promised JSON form."""
    command = [sys.executable, "-m", "xladoctor", "lint", "--isolated", "--output-format", "json"]
    done = subprocess.run(
        [*command, *(f"sample_runs/{path}" for path in paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def rows(source: str, expected: Expected) -> set[int]:
    """The rows on which a finding may be put; each piece must be in the file."""
    lines = source.splitlines()
    found = {
        piece: {row for row, line in enumerate(lines, 1) if piece in line} for piece in expected.at
    }
    missing = [piece for piece, where in found.items() if not where]
    assert not missing, f"the sample does not hold {missing}: correct this test"
    return set().union(*found.values())


@pytest.mark.parametrize("path", READINGS)
def test_lint_finds_what_an_expert_sees(path: str) -> None:
    source = (SAMPLES / path).read_text()
    reading = READINGS[path]
    found = {(finding["code"], finding["location"]["row"]) for finding in lint(path)}
    missed = [
        (expected.code, expected.at)
        for expected in reading.must
        if not any((expected.code, row) in found for row in rows(source, expected))
    ]
    allowed = {
        (expected.code, row)
        for expected in reading.must + reading.may
        for row in rows(source, expected)
    }
    lines = source.splitlines()
    unexpected = [(code, row, lines[row - 1].strip()) for code, row in sorted(found - allowed)]
    assert (missed, unexpected) == ([], [])


@pytest.mark.parametrize("sample", TREATED)
def test_lint_has_nothing_against_a_treated_program(sample: str) -> None:
    findings = lint(f"{sample}/treated.py")
    assert [(f["code"], f["location"]["row"]) for f in findings if f["severity"] != "info"] == []


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this module are recorded."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.xla
@pytest.mark.skipif(importlib.util.find_spec("torch_xla") is None, reason="needs the xla extra")
@pytest.mark.parametrize("sample", SOON)
def test_a_treated_program_trains_on_eight_simulated_cores(sample: str, run_dirs: Path) -> None:
    """It runs to its end, its loss falls, and after the first steps nothing is compiled."""
    report_file = run_dirs / f"{sample}.json"
    command = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "8"]
    command += ["--output", str(run_dirs / sample), "--output-format", "json"]
    command += ["--output-file", str(report_file), "--"]
    command += [sys.executable, f"sample_runs/{sample}/treated.py", "--small"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

    losses: dict[str, list[float]] = {}
    for run, loss in re.findall(r"^(.*)epoch \d+ loss (\d+\.\d+)", done.stdout, re.MULTILINE):
        losses.setdefault(run, []).append(float(loss))
    assert losses
    for values in losses.values():
        assert values[-1] < 0.95 * values[0]

    summary = json.loads(report_file.read_text())["summary"]
    assert summary["cores"] == 8
    assert summary["compilations_after_warmup"] == 0
    assert summary["fallbacks"] == {}


RECORDED = sorted(path.parent for path in SAMPLES.glob("*/recorded/*/manifest.json"))


def test_there_are_recorded_runs() -> None:
    assert [path.relative_to(SAMPLES).as_posix() for path in RECORDED] == [
        "ct_slices/recorded/runnable",
        "ct_slices/recorded/treated",
        "kfold_images/recorded/treated",
        "unet_mask_depth/recorded/treated",
    ]


@pytest.mark.parametrize("folder", RECORDED, ids=lambda path: path.relative_to(SAMPLES).as_posix())
def test_a_recorded_run_is_small_and_says_nothing_of_its_machine(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000
    paths = re.findall(r'"(/[^"]*)"', "".join(path.read_text() for path in files))
    assert [path for path in paths if not path.startswith("/project")] == []


def report(run: str) -> dict:
    """What ``xladoctor report`` says about a recorded run, in the promised JSON form."""
    command = [sys.executable, "-m", "xladoctor", "report", "--output-format", "json"]
    done = subprocess.run(
        [*command, f"sample_runs/{run}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_recorded_slow_run_shows_its_faults() -> None:
    """The counts follow from the program: 8 cores, 2 epochs of 7 steps and 2 validation steps."""
    result = report("ct_slices/recorded/runnable")
    summary = result["summary"]
    assert (summary["cores"], summary["steps"]) == (8, 14)
    assert summary["fallbacks"] == {"aten::bincount": 8 * 14, "aten::nonzero": 8 * 14}
    # Two reads in a training step, three in a validation step, one at the end of an epoch.
    assert summary["host_syncs"] == 8 * (14 * 2 + 2 * 2 * 3 + 2)
    assert summary["compilations_after_warmup"] > 0
    assert {"XLA101", "XLA202", "XLA203", "XLA501"} <= {f["code"] for f in result["findings"]}


@pytest.mark.parametrize("sample", ["kfold_images", "unet_mask_depth", "ct_slices"])
def test_a_recorded_treated_run_has_nothing_to_complain_about(sample: str) -> None:
    result = report(f"{sample}/recorded/treated")
    summary = result["summary"]
    assert (summary["cores"], summary["fallbacks"]) == (8, {})
    assert summary["compilations_after_warmup"] == 0
    assert [f["code"] for f in result["findings"] if f["severity"] != "info"] == []
