"""Each fix is proven by a run: the fixed program trains on simulated cores to the same numbers."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import proof_frameworks
import proof_programs
import pytest

from xladoctor import catalogue
from xladoctor.lint import engine, fixes

ROOT = Path(__file__).resolve().parents[2]

#: Which program proves the fix of a code, or why none can.
PROOFS = {
    **dict.fromkeys(
        ["XLA101", "XLA102", "XLA103", "XLA111", "XLA113", "XLA202", "XLA204", "XLA304",
         "XLA315", "XLA401", "XLA406", "XLA501", "XLA604", "XLA701", "XLA721", "XLA802",
         "XLA810"], "SLOW",
    ),
    **dict.fromkeys(
        ["XLA105", "XLA203", "XLA302", "XLA311", "XLA402", "XLA403", "XLA404", "XLA405", "XLA407",
         "XLA409", "XLA415", "XLA417", "XLA420", "XLA424", "XLA432", "XLA720",
         "XLA801", "XLA803"], "OLD",
    ),
    **dict.fromkeys(["XLA603", "XLA703", "XLA704", "XLA706", "XLA707", "XLA709", "XLA718"], "CUDA"),
    "XLA301": "ENDLESS",
    "XLA303": "APART",
    "XLA307": "APART",
    "XLA308": "APART",
    "XLA426": "APART",
    **dict.fromkeys(["XLA309", "XLA708"], "SHARDED"),
    **dict.fromkeys(["XLA318", "XLA433", "XLA436", "XLA438"], "UNTRAINED"),
    "XLA429": "SPMD",
    **dict.fromkeys(["XLA901", "XLA902", "XLA910"], "LIGHTNING"),
    **dict.fromkeys(["XLA905", "XLA906"], "TRAINER"),
    "XLA209": "sample lightning_tpu",
    "XLA002": "not run: only a comment changes",
    "XLA804": "not run: only an import that nobody uses goes",
    "XLA716": "not run: it installs other releases over the network",
    "XLA427": "not run: what is logged changes on purpose, the training does not",
    "XLA321": "not run: evaluations change on purpose, the training does not",
    "XLA713": "not run: the values are another type's on purpose",
    **dict.fromkeys(
        ["XLA850", "XLA851", "XLA852", "XLA853", "XLA854", "XLA859", "XLA860", "XLA861", "XLA864"],
        "not run: torch_tpu is not part of the environment",
    ),
    "XLA314": "not run: torch.compile needs a C++ compiler on the machine",
}  # fmt: skip


PROGRAMS = {
    name: text
    for module in (proof_programs, proof_frameworks)
    for name, text in vars(module).items()
    if name.isupper() and not name.startswith("_")
}
NAMES = sorted(set(PROOFS.values()) & set(PROGRAMS))


def needs(framework):
    """Skip without the framework, which the extra ``frameworks`` brings."""
    return pytest.mark.skipif(
        importlib.util.find_spec(framework) is None, reason=f"needs {framework}"
    )


def fixed(name):
    text = PROGRAMS[name]
    done = fixes.fix(text.encode(), f"{name.lower()}.py", engine.lint, unsafe=True)
    assert done.stable
    assert done.result.failures == ()
    return done


def test_every_fix_has_a_proof_or_a_reason():
    with_fix = {page.code for page in catalogue.pages().values() if page.fix != "none"}
    ours = {code for code in with_fix if code.startswith("XLA")}
    assert ours <= set(PROOFS), "say which program proves the fix, or why none can"


def test_what_no_run_proves_has_a_reason():
    rest = {proof for proof in PROOFS.values() if proof not in PROGRAMS}
    assert all(re.match("sample |not run: .{20}", proof) for proof in rest), rest


@pytest.mark.parametrize("name", NAMES)
def test_the_programs_hold_what_they_prove(name):
    made = {item.code for item in fixed(name).made}
    assert {code for code, proof in PROOFS.items() if proof == name} <= made


def test_what_stays_in_the_fixed_programs():
    left = {name: {f.code for f in fixed(name).result.findings} for name in ("SLOW", "CUDA")}
    assert left == {"SLOW": set(), "CUDA": set()}
    # To skip a step, the host has to know.
    assert {f.code for f in fixed("OLD").result.findings} == {"XLA104"}


class Ran:
    """What a program printed, and what the report counts."""

    def __init__(self, folder, name, text, cores):
        folder = folder / name
        folder.mkdir()
        if "from tqdm import" in text:  # frameworks take the real one
            (folder / "tqdm.py").write_text(proof_programs.TQDM)
        (folder / "program.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(cores),
             "--output-format", "json", "--output-file", "report.json", "--",
             sys.executable, "-W", "ignore", "program.py"],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        self.folder = folder
        self.stdout = done.stdout
        self.summary = json.loads((folder / "report.json").read_text())["summary"]

    def lines(self, start):
        """The lines that begin so, a pattern, sorted: cores print in any order."""
        lines = re.findall(rf"^{start}.*$", self.stdout, re.MULTILINE)
        assert lines, self.stdout
        return sorted(set(lines))

    def numbers(self, start):
        """The numbers of the lines that begin so."""
        found = re.findall(r"-?\d+\.?\d*", "\n".join(self.lines(start)))
        return [float(number) for number in found]


@pytest.mark.xla
def test_what_was_slow_gives_the_same_numbers_with_fewer_syncs_and_graphs(tmp_path):
    before = Ran(tmp_path, "before", proof_programs.SLOW, 2)
    after = Ran(tmp_path, "after", fixed("SLOW").data.decode(), 2)
    # Losses, hits and counts of labels by epoch, and the final weights of both cores.
    for word in (r"epoch \d(?! step)", "due", "weights"):
        assert after.numbers(word) == pytest.approx(before.numbers(word), abs=2e-4)
    # Of both cores' lines, the first core's are left.
    assert len(after.lines("epoch . step")) == 2 * 3 < len(before.lines("epoch . step"))
    assert len(after.numbers("weights")) == 2 * 5
    steps = 2 * 2 * 3
    # What is shown is still read, when its step has run.
    assert after.summary["host_syncs"] < before.summary["host_syncs"]
    assert before.summary["fallbacks"]["aten::bincount"] == steps
    assert after.summary["fallbacks"] == {}
    assert after.summary["compilations"] < before.summary["compilations"]
    # The zeros with which the totals of the second epoch begin may be a graph of their own.
    assert after.summary["compilations_after_warmup"] <= 1
    # One core prints, draws and writes.
    assert before.stdout.count("a bar") == 2 * after.stdout.count("a bar")
    assert (after.folder / "losses.npy").is_file()
    assert (after.folder / "model.pt").is_file()


@pytest.mark.slow
@pytest.mark.xla
def test_what_was_old_trains_as_it_is_written_today(tmp_path):
    today = Ran(tmp_path, "today", proof_programs.TODAY, 2)
    after = Ran(tmp_path, "after", fixed("OLD").data.decode(), 2)
    for word in ("losses", "own", "weights"):
        assert after.numbers(word) == pytest.approx(today.numbers(word), abs=2e-4)
    assert after.summary["steps"] == today.summary["steps"] == 9
    # As under XRT, the parent is one process.
    assert after.numbers("before") == [1.0]


@pytest.mark.slow
@pytest.mark.xla
def test_cores_that_went_apart_stay_together(tmp_path):
    after = Ran(tmp_path, "apart", fixed("APART").data.decode(), 2)
    first, second = re.findall(r"^weights \d (.*)$", after.stdout, re.MULTILINE)
    assert first == second
    assert after.numbers("cores") == [2.0]


@pytest.mark.xla
def test_what_was_written_for_a_gpu_trains_on_one_core_as_on_the_cpu(tmp_path):
    torch = pytest.importorskip("torch")
    after = Ran(tmp_path, "cuda", fixed("CUDA").data.decode(), 1)
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    y = x[:, :3].clone()
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for epoch in range(2):
        total = 0.0
        for rows in torch.arange(32).split(8):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total += loss.item()
        expected += [epoch, total / 4]
    assert after.numbers("epoch") == pytest.approx(expected, abs=2e-4)
    weights = [float(p.detach().abs().sum()) for p in model.parameters()]
    assert after.numbers("weights") == pytest.approx(weights, abs=2e-3)
    assert "half torch.bfloat16" in after.stdout
    # It was saved from the host: any machine can load it.
    state = torch.load(after.folder / "cuda.pt", weights_only=True)
    assert {value.device.type for value in state.values()} == {"cpu"}


@pytest.mark.slow
@pytest.mark.xla
def test_an_endless_graph_ends_with_each_step(tmp_path):
    before = Ran(tmp_path, "before", proof_programs.ENDLESS, 1)
    after = Ran(tmp_path, "after", fixed("ENDLESS").data.decode(), 1)
    assert after.numbers("total") == pytest.approx(before.numbers("total"), abs=2e-4)
    assert after.summary["compilations_after_warmup"] == 0


def trained(model, steps, lr=0.1, max_norm=None):
    """Train with plain torch on the CPU: for each step, what each core computes a loss of."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for parts in steps:
        optimizer.zero_grad()
        each = [loss(model) for loss in parts]
        total = sum(each) / len(each)
        total.backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        losses.append(total.item())
    return losses


@pytest.mark.xla
@pytest.mark.slow
def test_sharded_parameters_are_reduced_once_in_a_group_for_xla(tmp_path):
    torch = pytest.importorskip("torch")
    after = Ran(tmp_path, "sharded", fixed("SHARDED").data.decode(), 2)
    torch.manual_seed(0)
    steps = [
        [lambda m, v=0.5 * step + core: m(torch.full((4, 4), v)).pow(2).mean() for core in range(2)]
        for step in range(4)
    ]
    expected = [2 * loss for loss in trained(torch.nn.Linear(4, 2), steps)]
    # Summed over the two cores that the group has, whatever world_size said.
    assert after.numbers("losses") == pytest.approx([*expected, 2], abs=2e-3)


@pytest.mark.slow
@pytest.mark.xla
def test_layers_before_a_collective_and_clipped_shards_train_as_on_one_device(tmp_path):
    torch = pytest.importorskip("torch")
    after = Ran(tmp_path, "untrained", fixed("UNTRAINED").data.decode(), 2)
    images = [[torch.full((4, 4), 0.5 * step + core) for core in range(2)] for step in range(4)]

    def together(parts):
        return [lambda m: ((m(parts[0]) + m(parts[1])) / 2 - 1).pow(2).mean()]

    torch.manual_seed(0)
    # The backward pass of torch_xla's functions stays on its core, and xm.optimizer_step takes the
    # mean of what the cores have: half of the gradient on two cores, as the page says.
    expected = trained(torch.nn.Linear(4, 2), [together(parts) for parts in images], lr=0.05)
    assert after.numbers("gathered") == pytest.approx(expected, abs=2e-3)
    torch.manual_seed(0)
    steps = [[lambda m, x=x: m(x).pow(2).mean() for x in parts] for parts in images]
    expected = trained(torch.nn.Linear(4, 2), steps, lr=1.0, max_norm=0.1)
    assert after.lines("written") == ["written [0, 1, 3, 4] mean [4.0]"]
    assert after.numbers("clipped") == pytest.approx(expected, abs=2e-3)


@pytest.mark.xla
def test_devices_that_share_each_batch_train_as_one(tmp_path):
    torch = pytest.importorskip("torch")
    after = Ran(tmp_path, "spmd", fixed("SPMD").data.decode(), 4)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    steps = [[lambda m, x=images: m(x).pow(2).mean()] for images in torch.randn(4, 8, 4)]
    assert after.numbers("losses") == pytest.approx(trained(model, steps), abs=2e-3)
    assert after.lines("devices") == ["devices 4 True"]


@pytest.mark.xla
@needs("lightning")
def test_lightning_of_old_trains_as_plain_torch_does(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.utils.data.distributed import DistributedSampler

    after = Ran(tmp_path, "lightning", fixed("LIGHTNING").data.decode(), 2)

    def data(rows):
        x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
        return x, 3 * x[:, :1]

    def loss(model, x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    (x, y), checks = data(48), data(16)
    kept = []
    for epoch in range(2):
        rows = []
        for core in range(2):  # Lightning shuffles what is for training
            sampler = DistributedSampler(range(48), 2, core, shuffle=True, seed=0)
            sampler.set_epoch(epoch)
            rows.append(torch.tensor(list(sampler)).split(4))
        steps = [
            [lambda m, i=i: loss(m, x[i], y[i]) for i in pair] for pair in zip(*rows, strict=True)
        ]
        trained(model, steps)
        with torch.no_grad():
            kept.append(loss(model, checks[0][::2], checks[1][::2]).item())
    with torch.no_grad():
        whole = loss(model, *checks).item()
    # The first core keeps what its two batches gave; together they log the mean.
    values = [float(value) for value in re.findall(r"^kept 2 (.*)$", after.stdout, re.MULTILINE)]
    assert values[1:] == pytest.approx(kept, abs=2e-3)  # before them, the check of the beginning
    assert after.numbers("losses") == pytest.approx([whole], abs=2e-3)
    assert after.summary["steps"] == 12


@pytest.mark.slow
@pytest.mark.xla
@needs("transformers")
@needs("accelerate")
def test_the_trainer_of_old_arguments_trains_on_whole_batches(tmp_path):
    after = Ran(tmp_path, "trainer", fixed("TRAINER").data.decode(), 2)
    # 50 samples on two cores in batches of 4: the seventh batch would be another graph.
    assert after.lines("steps") == ["steps 6"]
    assert after.summary["steps"] == 6
    assert after.summary["compilations_after_warmup"] == 0
    # The two cores share each batch of 8, as split_batches asks.
    assert after.lines("sizes") == ["sizes [4, 4]"]
