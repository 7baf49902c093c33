"""What is built and installed: every form finds the rule pages, and none brings torch."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.name for path in (ROOT / "rules").glob("XLA*.md"))
TABLES = sorted(path.name for path in (ROOT / "rules" / "tables").glob("*.toml"))

FIND_PAGES = "from xladoctor import catalogue as c; print(c.catalogue_dir()); print(*c.pages())"
TRAINING = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

device = xm.xla_device()


def train(model, loader, optimizer):
    total = 0.0
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        total += loss.item()
    return total
"""
# The form is torch_xla's; the numbers are invented.
METRICS = """\
Metric: CompileTime
  TotalSamples: 4
  Accumulator: 08s128ms117.000us
  ValueRate: 321ms105.211us / second
  Rate: 0.158 / second
  Percentiles: 1%=001ms32.778us; 50%=002s100ms10.000us; 99%=004s31ms2.000us
Counter: MarkStep
  Value: 120
Counter: UncachedCompile
  Value: 4
Counter: aten::_local_scalar_dense
  Value: 960
"""


def call(*command: str | Path, cwd: Path, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **kwargs,
    )


def succeed(*command: str | Path, cwd: Path, **kwargs) -> str:
    done = call(*command, cwd=cwd, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=ROOT)
    return out


def make_venv(path: Path, *install: str | Path) -> Path:
    """A fresh environment with nothing but what is named; its Python."""
    venv.create(path, with_pip=False, symlinks=True)
    python = path / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    succeed(*pip, "install", "--quiet", *install, cwd=path)
    return python


@pytest.fixture(scope="module")
def plain(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment made by ``pip install xladoctor``, without any extra."""
    (wheel,) = built.glob("*.whl")
    return make_venv(tmp_path_factory.mktemp("plain"), wheel)


def test_there_are_pages_and_tables_to_look_for() -> None:
    assert "XLA101-host-sync-in-step.md" in PAGES
    assert "api.toml" in TABLES


def test_the_sdist_holds_all_that_is_needed_to_work_on_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"rules/{page}" for page in PAGES} <= names
    for wanted in (
        ".ci/install.py",
        "Makefile",
        "README.md",
        "CHANGELOG.md",
        "ARCHITECTURE.md",
        "LICENSE",
        "pyproject.toml",
        ".pre-commit-hooks.yaml",
        "tests/test_packaging.py",
        "sample_runs/ct_slices/as_found.py",
        "xladoctor/py.typed",
    ):
        assert wanted in names


def test_the_wheel_holds_the_package_the_pages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"xladoctor/_rules/{page}" for page in PAGES} <= names
    assert {f"xladoctor/_rules/tables/{table}" for table in TABLES} <= names
    assert "xladoctor/py.typed" in names
    assert "xladoctor/capture/agent/bootstrap/sitecustomize.py" in names
    templates = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "xladoctor" / "report" / "templates").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    assert templates
    assert templates <= names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"xladoctor"}
    assert not {name for name in names if {"tests", "sample_runs"} & set(name.split("/"))}


def test_an_installed_wheel_finds_its_pages(plain: Path, tmp_path: Path) -> None:
    place, codes = succeed(plain, "-c", FIND_PAGES, cwd=tmp_path).splitlines()
    assert place.endswith("xladoctor/_rules")
    assert codes.split() == [page.partition("-")[0] for page in PAGES]


def test_an_editable_install_reads_the_pages_of_the_checkout(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", "--no-deps", "--editable", ROOT)
    if sys.version_info < (3, 11):
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
        succeed(*pip, "install", "--quiet", "tomli", cwd=tmp_path)
    place, codes = succeed(python, "-c", FIND_PAGES, cwd=tmp_path).splitlines()
    assert place == str(ROOT / "rules")
    assert codes.split() == [page.partition("-")[0] for page in PAGES]


def test_a_bare_checkout_finds_its_pages() -> None:
    place, codes = succeed(sys.executable, "-c", FIND_PAGES, cwd=ROOT).splitlines()
    assert place == str(ROOT / "rules")
    assert codes.split() == [page.partition("-")[0] for page in PAGES]


class TestWithoutExtras:
    """``pip install xladoctor`` alone: no torch, no torch_xla, no pandas."""

    def test_it_brings_neither_torch_nor_pandas(self, plain: Path, tmp_path: Path) -> None:
        look = "import importlib.util as u; print([u.find_spec(n) for n in %r])"
        names = ["torch", "torch_xla", "pandas", "numpy"]
        assert succeed(plain, "-c", look % names, cwd=tmp_path).strip() == str([None] * 4)

    def test_lint_finds_a_fault(self, plain: Path, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(TRAINING)
        command = plain.with_name("xladoctor")
        done = call(command, "lint", "--output-format", "concise", "train.py", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        row = TRAINING[: TRAINING.index("loss.item")].count("\n") + 1
        assert f"train.py:{row}:18: XLA101" in done.stdout

    def test_explain_shows_a_page(self, plain: Path, tmp_path: Path) -> None:
        shown = succeed(plain.with_name("xladoctor"), "explain", "XLA101", cwd=tmp_path)
        assert "host-sync-in-step" in shown

    def test_rules_lists_every_page(self, plain: Path, tmp_path: Path) -> None:
        shown = succeed(plain.with_name("xladoctor"), "rules", cwd=tmp_path)
        assert not [page for page in PAGES if page.partition("-")[0] not in shown]

    @pytest.mark.parametrize("form", ["full", "concise", "json", "html"])
    def test_report_reads_a_pasted_metrics_report(
        self, plain: Path, tmp_path: Path, form: str
    ) -> None:
        (tmp_path / "metrics.txt").write_text(METRICS)
        command = plain.with_name("xladoctor")
        shown = succeed(command, "report", "--output-format", form, "metrics.txt", cwd=tmp_path)
        assert "XLA101" in shown or "_local_scalar_dense" in shown

    def test_profile_names_the_extra_that_is_missing(self, plain: Path, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("import torch_xla\n")
        command = [plain.with_name("xladoctor"), "profile", "--simulate-cores", "8", "--"]
        done = call(*command, plain, "train.py", cwd=tmp_path)
        assert done.returncode == 2
        assert 'pip install "xladoctor[xla]"' in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / ".xladoctor").exists()

    def test_data_frames_name_the_extra_that_is_missing(self, plain: Path, tmp_path: Path) -> None:
        code = """\
from xladoctor.errors import XladoctorError
from xladoctor import load_run
run = load_run("metrics.txt")
try:
    run.steps
except XladoctorError as error:
    print(error)
"""
        (tmp_path / "metrics.txt").write_text("Counter: MarkStep\n  Value: 5\n")
        shown = succeed(plain, "-c", code, cwd=tmp_path)
        assert shown.count("\n") == 1
        assert 'pip install "xladoctor[report]"' in shown


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["lint", "train.py"], id="lint"),
        pytest.param(["explain", "XLA101"], id="explain"),
        pytest.param(["rules"], id="rules"),
        pytest.param(["report", "metrics.txt"], id="report"),
    ],
)
def test_torch_and_pandas_stay_out_where_they_are_installed(
    arguments: list[str], tmp_path: Path
) -> None:
    """Importing torch takes seconds, so commands that do not need it must not import it."""
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "metrics.txt").write_text(METRICS)
    code = (
        "import sys; from xladoctor.cli.app import main; main(sys.argv[1:]); "
        "print('imported:', sorted({'torch', 'torch_xla', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    shown = succeed(sys.executable, "-c", code, *arguments, cwd=tmp_path, env=environment)
    assert shown.splitlines()[-1] == "imported: []"
