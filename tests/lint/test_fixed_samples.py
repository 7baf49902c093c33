"""The sample programs as found, fixed: what the fixes make of them runs on torch_xla 2.9."""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import proof_programs
import pytest

from xladoctor.lint import engine, fixes

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_runs"

#: Sizes for a CPU: what stands in the sample, what to write; the code between them stays.
SMALL = {
    "kfold_images": [
        ("epochs = 8", "epochs = 2"),
        ("batch_size = 16", "batch_size = 4"),
        ("img_size = 224", "img_size = 16"),
        ("n_images = 20000", "n_images = 160"),
        ("(16, 1, 1), (24, 2, 2), (40, 2, 2), (80, 3, 2), (112, 3, 1)", "(8, 1, 2), (16, 1, 2)"),
        ("num_workers=4", "num_workers=0"),
        ("for fold in range(Config.n_fold)", "for fold in range(1)"),
    ],
    "lightning_tpu": [
        ("n_train = 50000", "n_train = 640"),
        ("n_valid = 10000", "n_valid = 128"),
        ("length = 256", "length = 64"),
        ("width = 64", "width = 8"),
        ("batch_size = 100", "batch_size = 16"),
        ("epochs = 10", "epochs = 2"),
        ("num_workers=4", "num_workers=0"),
    ],
    "ct_slices": [
        ("layers = [3, 4, 6, 3]", "layers = [1, 1]"),
        ("width = 64", "width = 4"),
        ("size = 256", "size = 16"),
        ("n_train = 40000", "n_train = 192"),
        ("n_valid = 8000", "n_valid = 64"),
        ("batch_size = 128", "batch_size = 8"),
        ("n_epochs = 10", "n_epochs = 2"),
        ("lr = 1e-4", "lr = 1e-3"),
        # What a device drops is not what another run drops.
        ("nn.Dropout(0.4)", "nn.Dropout(0.0)"),
    ],
    "unet_mask_depth": [
        ("epochs=5, batch_size=32, size=128", "epochs=2, batch_size=4, size=16"),
        ("n_train=10000, n_valid=1000", "n_train=96, n_valid=32"),
        ("width=32", "width=2"),
        ("num_workers=4", "num_workers=0"),
    ],
    "unet_mask_depth/as_found_1core.py": [
        ("EPOCHS = 5", "EPOCHS = 2"),
        ("BATCH_SIZE = 32", "BATCH_SIZE = 4"),
        ("SIZE = 128", "SIZE = 16"),
        ("N_IMAGES = 10000", "N_IMAGES = 16"),
        ("num_workers=4", "num_workers=0"),
        ("def __init__(self, w=32)", "def __init__(self, w=2)"),
    ],
}  # fmt: skip


#: treated.py on the data, the net and the loss of the fixed program: what is left to differ is how
#: the two train. Core 0 of each shows its own losses.
TREATED = {
    "kfold_images": """
def fold_indices(*args):
    found.seed_all(found.Config.seed)
    found.labels = np.random.randint(0, found.Config.n_classes, found.Config.n_images)
    return found.make_folds(found.Config.n_images, found.Config.n_fold)[0]


treated.fold_indices = fold_indices
treated.LeafDataset = lambda at, labels, size, train: found.LeafDataset(at, found.labels, train)
treated.LeafNet = lambda stages: found.LeafNet()
sys.argv[1:] = "--folds 1 --images 160 --batch-size 4 --workers 0 --epochs 2 --lr 3e-4".split()
""",
    "ct_slices": """
class Net(found.SliceNet):
    def loss(self, outputs, labels):
        return found.loss_fn(outputs, labels)


sizes = {1: found.CFG.n_train, 2: found.CFG.n_valid}
treated.SliceDataset = lambda slices, size, seed: found.SliceDataset(sizes[seed], seed)
treated.SliceNet = lambda layers, width: Net(found.CFG.layers, found.CFG.width, found.CFG.n_labels)
sys.argv[1:] = "--batch-size 8 --workers 0 --epochs 2 --lr 1e-3 --seed 42".split()
""",
    "unet_mask_depth": """
sizes = {1: (96,), 2: (32, 10**6)}
treated.TableDataset = lambda images, size, seed: found.TableDataset(*sizes[seed])
treated.ResUNet = lambda width, stages: found.ResUNet(found.flags["width"])
treated.loss_fn = found.MixedLoss()
sys.argv[1:] = ["--batch-size", "4", "--workers", "0", "--epochs", "2",
                "--lr", str(found.flags["lr"]), "--seed", str(found.flags["seed"])]
""",
}  # fmt: skip

TREATED_FRAME = """\
import sys
import numpy as np
import found_parts as found
import treated

{parts}
reduce = treated.xm.mesh_reduce


def shown(tag, value, function):
    if treated.xr.global_ordinal() == 0:
        print("own", tag, value[0] if isinstance(value, list) else value, flush=True)
    return reduce(tag, value, function)


treated.xm.mesh_reduce = shown
if __name__ == "__main__":
    treated.torch_xla.launch(treated._mp_fn, args=(treated.parse_flags(),))
"""


def fixed(name, *, unsafe=True):
    path = SAMPLES / (name if name.endswith(".py") else f"{name}/as_found.py")
    return fixes.fix(path.read_bytes(), "found.py", engine.lint, unsafe=unsafe)


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("name", ["kfold_images", "unet_mask_depth", "ct_slices", "lightning_tpu"])
def test_nothing_fixable_is_left(name, unsafe):
    done = fixed(name, unsafe=unsafe)
    assert done.stable
    assert done.made
    assert not [x for x in done.result.findings if fixes.is_applicable(x, unsafe=unsafe)]


@pytest.mark.parametrize("name", ["kfold_images", "unet_mask_depth", "ct_slices"])
def test_safe_fixes_leave_no_removed_name(name):
    left = {item.code for item in fixed(name, unsafe=False).result.findings}
    assert not left & {"XLA404", "XLA801", "XLA802"}


def test_collectives_are_reached_by_all_cores():
    for name in ("kfold_images", "ct_slices"):
        left = {item.code for item in fixed(name).result.findings}
        assert not left & {"XLA303", "XLA405", "XLA406", "XLA417"}


class Ran:
    """A fixed sample in its small form: what it printed and what the report counts."""

    def __init__(self, folder, name, cores=8):
        text = fixed(name).data.decode()
        for old, new in SMALL[name]:
            assert text.count(old) >= 1, old
            text = text.replace(old, new)
        (folder / "found.py").write_text(text)
        if name != "lightning_tpu":  # it has a progress bar of its own, and needs the real one
            (folder / "tqdm.py").write_text(proof_programs.TQDM)
        done = subprocess.run(
            [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(cores),
             "--output-format", "json", "--output-file", "report.json", "--",
             sys.executable, "found.py"],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        self.folder, self.text = folder, text
        self.stdout = done.stdout
        self.report = json.loads((folder / "report.json").read_text())
        self.summary = self.report["summary"]

    def losses(self, pattern):
        return [float(x) for x in re.findall(pattern, self.stdout)]

    def as_treated(self, name, tag):
        """The losses of core 0 when treated.py trains on the same data from the same weights."""
        # All but the lines that start the cores.
        start = re.search(r"^(for fold in range|xmp\.spawn\()", self.text, re.MULTILINE)
        (self.folder / "found_parts.py").write_text(self.text[: start.start()])
        shutil.copy(SAMPLES / name / "treated.py", self.folder)
        (self.folder / "both.py").write_text(TREATED_FRAME.format(parts=TREATED[name]))
        done = subprocess.run(
            [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "8",
             "--detail", "low", "--output-format", "concise", "--", sys.executable, "both.py"],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return [float(x) for x in re.findall(rf"^own {tag} (\S+)", done.stdout, re.MULTILINE)]

    def treated(self, name):
        """The summary of the recorded run of the program as an expert would have treated it."""
        done = subprocess.run(
            [sys.executable, "-m", "xladoctor", "report", "--output-format", "json",
             str(SAMPLES / name / "recorded/treated")],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=600,
            check=True,
        )  # fmt: skip
        return json.loads(done.stdout)["summary"]


@pytest.mark.xla
@pytest.mark.slow
def test_kfold_images_fixed_trains_on_eight_cores(tmp_path):
    ran = Ran(tmp_path, "kfold_images")
    # One core prints, two epochs of four steps; it learns.
    losses = ran.losses(r"loss ([\d.]+) acc")
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    # The mean of an epoch, as the program treated by hand has it.
    assert losses[3::4] == pytest.approx(ran.as_treated("kfold_images", "train_loss"), abs=2e-4)
    assert ran.stdout.count("valid acc") == 2
    assert (tmp_path / "leaf_fold0.pth").is_file()
    # As treated: no fallback, cores that stay equal, and no step is compiled again. What remains:
    # a step shows two values on each core, a validation step reads two; and the zeros with which
    # the totals of the second epoch begin are a (tiny) graph of their own.
    treated = ran.treated("kfold_images")
    for key in ("cores", "fallbacks"):
        assert ran.summary[key] == treated[key]
    assert treated["compilations_after_warmup"] == 0
    assert ran.summary["compilations_after_warmup"] <= 1
    assert not [x for x in ran.report["findings"] if x["code"] == "XLA412"]


@pytest.mark.xla
@pytest.mark.slow
def test_ct_slices_fixed_trains_on_eight_cores(tmp_path):
    ran = Ran(tmp_path, "ct_slices")
    losses = ran.losses(r"valid loss ([\d.]+) acc")
    assert len(losses) == 2
    assert losses[-1] < losses[0]
    assert losses == pytest.approx(ran.as_treated("ct_slices", "validation"), abs=2e-4)
    assert ran.stdout.count("saved,") >= 1
    assert (tmp_path / "resnet34_best.bin").is_file()
    treated = ran.treated("ct_slices")
    for key in ("cores", "fallbacks"):
        assert ran.summary[key] == treated[key]
    # The first step of a meter is a graph of its own, once more when no weights are new: its sum
    # is divided by the number that the loss was multiplied with.
    assert treated["compilations_after_warmup"] == 0
    assert ran.summary["compilations_after_warmup"] <= 1
    assert ran.summary["steps"] == 6
    # The meters are not read in the steps. What remains: two values in each validation step, and
    # how the program ends an epoch.
    text = (tmp_path / "found.py").read_text().splitlines()
    meters = {row for row, line in enumerate(text, 1) if "_meter.update(" in line}
    assert len(meters) == 2
    read = {
        place["row"]
        for item in ran.report["findings"] if item["code"] == "XLA101"
        for place in item["locations"]
    }  # fmt: skip
    assert read
    assert not read & meters
    assert [x["code"] for x in ran.report["findings"] if x["severity"] == "error"] == []


@pytest.mark.xla
@pytest.mark.slow
def test_unet_fixed_trains_on_eight_cores(tmp_path):
    ran = Ran(tmp_path, "unet_mask_depth")
    # Each core says what it lost, in both epochs; the cores together lose less in the second.
    first, second = (ran.losses(rf"epoch {epoch} loss ([\d.]+) iou") for epoch in (0, 1))
    assert len(first) == len(second) == 8
    assert sum(second) < sum(first)
    own = ran.losses(r"\[0\] epoch \d loss ([\d.]+)")
    assert own == pytest.approx(ran.as_treated("unet_mask_depth", "train_loss"), abs=2e-4)
    assert len(ran.losses(r"valid loss ([\d.]+)")) == 2
    assert (tmp_path / "resunet.pth").is_file()
    treated = ran.treated("unet_mask_depth")
    assert ran.summary["cores"] == treated["cores"]
    assert ran.summary["steps"] == 6
    # What remains: all cores ask together whether a loss is NaN, and show it, in each step; the
    # backward pass of the upsampling runs on the CPU (the treated net has another upsampling).
    assert treated["fallbacks"] == {}
    assert set(ran.summary["fallbacks"]) == {"aten::upsample_bilinear2d_backward"}
    assert [x["code"] for x in ran.report["findings"] if x["severity"] == "error"] == []


@pytest.mark.xla
@pytest.mark.slow
def test_unet_on_one_core_fixed_trains(tmp_path):
    """Not held against treated.py's losses.

    It draws the order of its images from the generator that has drawn its weights before, and
    treated.py has that order from a sampler with a seed of its own.
    """
    ran = Ran(tmp_path, "unet_mask_depth/as_found_1core.py", cores=1)
    losses = ran.losses(r"epoch \d loss tensor\(([\d.]+)")
    assert len(losses) == 2
    assert losses[-1] < losses[0]
    assert ran.summary["steps"] == 8
    assert (tmp_path / "resunet_1core.pth").is_file()


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.skipif(
    importlib.util.find_spec("pytorch_lightning") is None, reason="needs the extra 'frameworks'"
)
def test_lightning_fixed_trains_on_eight_cores(tmp_path):
    """Against what test_frameworks_xla.py says of treated.py, in the same sizes.

    Not its losses: treated.py draws a signal's noise by its index, pads to 64 and not to 128, and
    shows the loss of all cores; this program draws noise in the order in which signals are loaded,
    takes the mean over the padding too, and shows core 0's loss.
    """
    ran = Ran(tmp_path, "lightning_tpu")
    losses = ran.losses(r"train loss ([\d.]+)")
    assert len(losses) == 2
    # It begins as one that guesses among 12 classes, and learns.
    assert abs(losses[0] - math.log(12)) < 0.3
    assert losses[1] < losses[0]
    # 640 signals for 8 cores in batches of 16: 5 steps in each of 2 epochs.
    assert [core["steps"] for core in ran.report["cores"]] == [10] * 8
    assert ran.summary["fallbacks"] == {}
    assert [x["code"] for x in ran.report["findings"] if x["severity"] == "error"] == []
    # No batch has a shape of its own.
    kinds = [x["cause"]["kind"] for x in ran.report["compilations"]]
    assert "input-shape" not in kinds
    assert "core-divergence" not in kinds
    assert re.search(r"best \S+\.ckpt", ran.stdout)
