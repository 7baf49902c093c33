"""What a project's requirements pin: names that its releases of frameworks have are not told of."""

from __future__ import annotations

import json
import textwrap

import pytest

from xladoctor.cli.app import main
from xladoctor.lint import pins
from xladoctor.lint import requirements as reading
from xladoctor.lint.looked import Looked
from xladoctor.lint.pins import Pin, Pins, keeps_old

TRAIN = """\
import torch_xla
from transformers import AdamW, TrainingArguments

arguments = TrainingArguments("out", evaluation_strategy="epoch", logging_steps=1, fp16=True)
optimizer = AdamW(model.parameters())
"""


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        (folder / name).write_bytes(data)


def of(folder, inside="."):
    """Framework to what its pin says, for the files of a folder of a project."""
    found = Pins(Looked(0), str(folder)).of(str(folder / inside))
    return {pin.of: (pin.required, pin.limits) for pin in found}


def required(text, of="transformers"):
    return {of: (tuple(text), ())}


FILES = {
    "pip's": (
        {"requirements.txt": "torch\ntransformers[torch]==4.37.2  # the last that fits\n"},
        "==4.37.2",
    ),
    "pip's of another name": ({"requirements-tpu.txt": "Transformers == 4.37.2\n"}, "==4.37.2"),
    "pip's under a prefix": ({"tpu_requirements.txt": "transformers<5"}, "<5"),
    "a folder of pip's": ({"requirements/train.txt": "transformers~=4.57.6"}, "~=4.57.6"),
    "with hashes": (
        {"requirements.txt": "transformers==4.37.2 \\\n    --hash=sha256:00\n"},
        "==4.37.2",
    ),
    "as PowerShell writes it": (
        {"requirements.txt": "transformers==4.37.2\r\n".encode("utf-16")},
        "==4.37.2",
    ),
    "with a marker": (
        {"requirements.txt": 'transformers==4.37.2; python_version >= "3.8"'},
        "==4.37.2",
    ),
    "named by another file": (
        {
            "requirements.txt": "-r needed/base.txt\n-r requirements.txt\n--requirement=none.txt\n",
            "needed/base.txt": "transformers==4.37.2",
        },
        "==4.37.2",
    ),
    "the project's table": (
        {"pyproject.toml": '[project]\nname = "x"\ndependencies = ["transformers==4.37.2"]\n'},
        "==4.37.2",
    ),
    "optional ones": (
        {"pyproject.toml": '[project.optional-dependencies]\ntpu = ["transformers<5,>=4.30"]\n'},
        "<5,>=4.30",
    ),
    "groups of them": (
        {
            "pyproject.toml": """
                [dependency-groups]
                train = ["transformers<5", {include-group = "other"}]
            """
        },
        "<5",
    ),
    "Poetry's": (
        {"pyproject.toml": '[tool.poetry.dependencies]\ntransformers = "^4.30"'},
        ">=4.30,<5",
    ),
    "Poetry's with more": (
        {
            "pyproject.toml": """
                [tool.poetry.group.train.dependencies]
                transformers = {version = "~4.37.2", extras = ["torch"]}
            """
        },
        ">=4.37.2,<4.38",
    ),
    "Poetry's exact": (
        {"pyproject.toml": '[tool.poetry.dependencies]\ntransformers = "4.37.2"'},
        "==4.37.2",
    ),
    "Poetry's spaces": (
        {"pyproject.toml": '[tool.poetry.dependencies]\ntransformers = ">= 4.30, < 5"'},
        ">=4.30,<5",
    ),
    "setup.cfg": (
        {"setup.cfg": "[options]\ninstall_requires =\n    torch\n    transformers==4.37.2\n"},
        "==4.37.2",
    ),
    "nbdev's settings": (
        {
            "settings.ini": "[DEFAULT]\nlib_name = x\n"
            "requirements = torch>=1.7 transformers==4.37.2\n"
        },
        "==4.37.2",
    ),
    "extras of setup.cfg": (
        {"setup.cfg": "[options.extras_require]\ntpu = transformers==4.37.2\n"},
        "==4.37.2",
    ),
    "setup.py": (
        {"setup.py": "setup(name='x', install_requires=['torch', 'transformers==4.37.2'])"},
        "==4.37.2",
    ),
    "lists of setup.py": (
        {
            "setup.py": """
                _deps = ["torch", "transformers~=4.57.6"]
                deps = {one.split("~")[0]: one for one in _deps}
                setup(install_requires=[deps["transformers"]], keywords=["transformers"])
            """
        },
        "~=4.57.6",
    ),
    "extras of setup.py": (
        {"setup.py": "extras = {}\nextras['tpu'] = ['transformers==4.37.2'] + other\n"},
        "==4.37.2",
    ),
    "conda's": (
        {"environment.yml": "dependencies:\n  - python=3.10\n  - transformers=4.37\n"},
        "==4.37.*",
    ),
    "conda's with more": (
        {"environment.yaml": "dependencies:\n  - conda-forge::transformers=4.37.2=py310_0\n"},
        "==4.37.2.*",
    ),
    "conda's words": ({"environment.yml": "dependencies:\n  - transformers 4.37.*\n"}, "==4.37.*"),
    "pip's among conda's": (
        {"environment-tpu.yml": "dependencies:\n- pip:\n    - 'transformers==4.37.2'\n"},
        "==4.37.2",
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_of_file_is_read(tmp_path, kind):
    files, wanted = FILES[kind]
    write(tmp_path, files)
    [(required, limits)] = of(tmp_path).values()
    assert [set(one.split(",")) for one in required] == [set(wanted.split(","))]
    assert limits == ()
    assert keeps_old((Pin("transformers", required),), "transformers")


NOTHING = {
    "any release": {"requirements.txt": "transformers\n"},
    "any newer one": {"requirements.txt": "transformers>=4.30,!=4.40.0\n"},
    "no newer than one that is as new": {"requirements.txt": "torch==2.9\nlightning-utilities<1\n"},
    "a place": {"requirements.txt": "transformers @ git+https://example.org/transformers\n"},
    "what is none": {"requirements.txt": "transformers=>4.30\ntransformers==\n\x00\n-r \n-r\n"},
    "a comment": {"requirements.txt": "# transformers==4.37.2\n"},
    "broken TOML": {"pyproject.toml": "[project\ndependencies = ['transformers==4.37.2']"},
    "TOML of another form": {
        "pyproject.toml": """
            project = ["transformers==4.37.2"]
            [tool.poetry]
            dependencies = ["transformers==4.37.2"]
        """
    },
    "broken Python": {"setup.py": "setup(install_requires=['transformers==4.37.2'"},
    "broken settings": {"setup.cfg": "install_requires = transformers==4.37.2"},
    "other words of setup.py": {
        "setup.py": "setup(keywords=['transformers==4.37.2'], classifiers=['transformers<5'])"
    },
    "bytes": {"requirements.txt": b"\xff\xfe\x00transformers==4.37.2", "setup.py": b"\x00\xff"},
    "Poetry's any": {"pyproject.toml": "[tool.poetry.dependencies]\ntransformers = '*'"},
    "Poetry's choice": {
        "pyproject.toml": "[tool.poetry.dependencies]\ntransformers = '^4.30 || ^5.0'\n"
    },
    "a file that installs at its own time": {"install.sh": "pip install transformers==4.37.2"},
}


@pytest.mark.parametrize("kind", NOTHING)
def test_what_pins_nothing_or_cannot_be_read_says_nothing(tmp_path, kind):
    write(tmp_path, NOTHING[kind])
    found = Pins(Looked(0), str(tmp_path)).of(str(tmp_path))
    assert not keeps_old(found, "transformers")


@pytest.mark.parametrize(
    ("specifiers", "since", "kept"),
    [
        (["==4.37.2"], "", True),
        (["~=4.57.6"], "", True),
        (["~=4.57.6"], "4.46", False),
        (["==4.37.2"], "4.46", True),
        (["==4.*"], "", True),
        (["<5"], "", True),
        (["<=5"], "", False),
        (["==5.0.0rc1"], "", False),
        (["<=4.57.3"], "", True),
        (["==4.37.2+cu118"], "", True),
        (["===4.37.2"], "", True),
        (["===something"], "", True),
        ([">=4.30"], "", False),
        ([">=4.30,<5.1"], "", False),
        ([">5.0,<5.2"], "", False),
        (["!=5.0.*,<6"], "", False),
        ([""], "", False),
        (["==4.37.2", "<5"], "", True),
        (["==4.37.2", ">=4.30"], "", False),
    ],
)
def test_what_a_pin_keeps_away(specifiers, since, kept):
    assert keeps_old((Pin("transformers", tuple(specifiers)),), "transformers", since) is kept
    assert not keeps_old((Pin("trl", tuple(specifiers)),), "transformers", since)


def test_constraints_count_beside_requirements(tmp_path):
    write(
        tmp_path,
        {
            "requirements.txt": "transformers\n-c limits/all.txt\n",
            "limits/all.txt": "accelerate<1\ntransformers<5\n",
            "constraints-tpu.txt": "trl==0.9.6\n",
        },
    )
    found = Pins(Looked(0), str(tmp_path)).of(str(tmp_path))
    for framework in ("transformers", "accelerate", "trl"):
        assert keeps_old(found, framework)


def test_files_of_one_folder_that_disagree_keep_the_newest(tmp_path):
    write(
        tmp_path,
        {"requirements.txt": "transformers==4.37.2", "requirements-dev.txt": "transformers"},
    )
    assert of(tmp_path) == {}
    write(tmp_path, {"requirements-dev.txt": "transformers<5"})
    assert of(tmp_path) == required(["<5", "==4.37.2"])


def test_lightning_has_two_names(tmp_path):
    write(tmp_path, {"requirements.txt": "pytorch_lightning==1.9.5"})
    assert of(tmp_path) == required(["==1.9.5"], "lightning")
    write(tmp_path, {"requirements.txt": "pytorch-lightning==1.9.5\nlightning>=2\n"})
    assert of(tmp_path) == {}


def test_the_nearest_folder_that_names_it_decides(tmp_path):
    write(
        tmp_path,
        {
            "repo/.git/config": "",
            "requirements.txt": "transformers==1.0",  # not the project's
            "repo/requirements.txt": "transformers==4.37.2\naccelerate<1\n",
            "repo/new/setup.py": "setup(install_requires=['transformers>=5'])",
            "repo/old/requirements.txt": "transformers==4.30.0\n",
            "repo/other/requirements.txt": "torch\n",
        },
    )
    repo = tmp_path / "repo"
    all_of = {"accelerate": (("<1",), ())}
    assert of(repo) == of(repo, "other") == required(["==4.37.2"]) | all_of
    assert of(repo, "new/deeper/still") == all_of
    assert of(repo, "old/deeper") == required(["==4.30.0"]) | all_of
    # The same of a file that is given alone.
    assert of(repo / "other") == required(["==4.37.2"]) | all_of


def test_a_project_without_git_reaches_to_its_mark_around_what_was_given(tmp_path):
    write(
        tmp_path,
        {
            "requirements.txt": "transformers==1.0",
            "repo/setup.py": "setup(install_requires=['transformers==4.37.2'])",
            "repo/pkg/setup.cfg": "",
            "repo/pkg/deeper/train.py": "",
        },
    )
    assert of(tmp_path / "repo", "pkg/deeper") == required(["==4.37.2"])


def test_a_chain_of_files_ends(tmp_path):
    write(tmp_path, {"requirements.txt": "-r part0.txt"})
    write(tmp_path, {f"part{n}.txt": f"-r part{n + 1}.txt\n" for n in range(2000)})
    assert of(tmp_path) == {}
    assert not reading.is_requirements("notes.txt")


def test_requirements_that_nobody_writes_cost_little(tmp_path):
    number = "9" * 5000  # Python refuses to read it
    several = "".join(f"transformers<4.{n}\n" for n in range(20_000))
    write(tmp_path, {"requirements.txt": f"transformers=={number}\n{several}"})
    [(required, _)] = of(tmp_path).values()
    assert len(required) < 100
    write(tmp_path, {"requirements.txt": f"transformers=={number}\n", "setup.py": "[" * 100_000})
    assert of(tmp_path) == {}


def lint(capsys, *flags):
    """(row, code) of what the command finds, in its order."""
    main(["lint", "--output-format", "json", *flags])
    found = json.loads(capsys.readouterr().out)
    return [(item["location"]["row"], item["code"]) for item in found]


ALL = [(2, "XLA905"), (4, "XLA905"), (4, "XLA905"), (4, "XLA905")]


@pytest.fixture
def project(tmp_path, monkeypatch):
    write(tmp_path, {".git/config": "", "train.py": TRAIN})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_that_the_pinned_release_has_are_not_told(project, capsys):
    assert lint(capsys, "--no-cache", ".") == ALL
    # Of what fails on the device in every release something is said still.
    write(project, {"requirements.txt": "transformers==4.37.2"})
    assert lint(capsys, "--no-cache", ".") == ALL[2:]
    write(project, {"requirements.txt": "transformers~=4.57.6"})
    assert lint(capsys, "--no-cache", ".") == ALL[1:]  # 4.46 had renamed evaluation_strategy
    write(project, {"requirements.txt": "transformers>=4.37.2"})
    assert lint(capsys, "--no-cache", "train.py") == ALL


def test_code_from_standard_input_is_its_projects(project, capsys, monkeypatch):
    import io
    import types

    write(project, {"requirements.txt": "transformers==4.37.2", "inner/x.py": ""})
    for name, wanted in (("inner/new.py", ALL[2:]), ("/new.py", ALL)):
        stdin = types.SimpleNamespace(buffer=io.BytesIO(TRAIN.encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        assert lint(capsys, "--stdin-filename", name, "-") == wanted


@pytest.mark.parametrize("folder", [".", "pkg"])
def test_a_kept_run_notices_what_requirements_say(project, capsys, folder):
    """Files that come, change, are named by others, and go: never what was found before."""
    (project / "train.py").unlink()
    write(project, {"pkg/train.py": TRAIN, "pyproject.toml": "", "more/base.txt": ""})
    edits = [
        {},
        {"requirements.txt": "transformers==4.37.2"},
        {"requirements.txt": "transformers==5.0"},
        {"requirements.txt": "-r more/base.txt\n"},
        {"more/base.txt": "transformers==4.37.2"},
        {"pkg/requirements.txt": "transformers>=4.0"},
        {"pkg/requirements.txt": "torch"},
        {"requirements.txt": "", "requirements/x.txt": "torch"},
        {"requirements/tpu.txt": "transformers<5"},
        {"requirements/tpu.txt": ""},
        {"pyproject.toml": "[project]\ndependencies = ['transformers==4.37.2']\n"},
        {"pyproject.toml": "[project]\ndependencies = ['transformers']\n"},
        {"setup.cfg": "[options]\ninstall_requires = transformers<4\n", "pyproject.toml": ""},
    ]
    seen = []
    for edit in edits:
        write(project, edit)
        seen.append(lint(capsys, "--cache-dir", "kept", folder))
        assert seen[-1] == lint(capsys, "--no-cache", folder), edit
        assert seen[-1] == lint(capsys, "--cache-dir", "kept", folder), edit
    old, new, some = ALL[2:], ALL, ALL[1:]
    assert seen == [new, old, new, new, old, new, old, new, some, new, old, new, old]


def test_an_editor_hears_of_them_with_the_next_lint(project):
    from xladoctor.server import documents

    document = documents.Document(project / "train.py", (TRAIN,))
    assert len(documents.lint(document, {})) == len(ALL)
    write(project, {"requirements.txt": "transformers==4.37.2"})
    assert len(documents.lint(document, {})) == len(ALL[2:])


LIGHTNING = """\
import pytorch_lightning as pl
from pytorch_lightning.metrics import Accuracy  # gone
from pytorch_lightning.callbacks import XLAStatsMonitor  # gone


class Net(pl.LightningModule):
    def training_step(self, batch, index, optimizer_idx):  # gone
        return self(batch).mean()

    def validation_epoch_end(self, outputs):  # gone
        self.log("cores", self.trainer.use_tpu)  # gone

    def on_epoch_end(self):  # gone
        self.hparams = {}  # gone


trainer = pl.Trainer(
    tpu_cores=8,  # gone
    precision=16,  # gone
    weights_summary=None,  # gone in 1.7
    num_tpu_cores=8,  # gone in 0.9
    terminate_on_nan=True,  # gone
)
trainer.resume_from_checkpoint = "last.ckpt"  # gone
trainer.fit(Net(), train_dataloader=None)  # gone
many = pl.Trainer(accelerator="tpu", devices=3, strategy="tpu_spawn")  # stays, and one is gone
"""
ACCELERATE = """\
import torch_xla
from accelerate import Accelerator, DistributedType
from accelerate.utils import is_tpu_available  # gone

accelerator = Accelerator(
    fp16=True,  # gone in 0.16
    logging_dir="logs",  # gone in 0.20
    dispatch_batches=True,  # gone
)
other = Accelerator(mixed_precision="fp16")  # stays
if accelerator.distributed_type == DistributedType.TPU:  # gone
    accelerator.gather_for_metrics([loss.item()])  # stays
print(accelerator.use_fp16)  # gone
"""
TRL = """\
import torch_xla
from peft import prepare_model_for_int8_training  # gone
from transformers.utils import is_torch_tpu_available  # gone of transformers
from trl import PPOTrainer, SFTConfig, SFTTrainer  # gone of trl
from transformers import Trainer

config = SFTConfig("out", per_device_train_batch_size=8, dataloader_drop_last=True)  # both
trainer = SFTTrainer(net, config, max_seq_length=512)  # gone of trl


class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):  # gone of transformers
        self.use_apex  # gone of transformers
        return model(**inputs).loss

    def log(self, logs, start_time=None):
        self.tokenizer.encode_plus("x", pad_to_max_length=True)  # gone of transformers
"""


def lines(text, *marks):
    return {n for n, line in enumerate(text.splitlines(), 1) if any(x in line for x in marks)}


@pytest.mark.parametrize(
    ("program", "pin", "stay"),
    [
        (LIGHTNING, "pytorch-lightning<2", ("stays", "gone in")),
        (LIGHTNING, "pytorch-lightning==1.6.5", ("stays", "gone in 0.9")),
        (LIGHTNING, "lightning==0.8.5", ("stays",)),
        (ACCELERATE, "accelerate<1", ("stays", "gone in")),
        (ACCELERATE, "accelerate==0.18.0", ("stays", "0.16")),
        (ACCELERATE, "accelerate==0.12.0", ("stays",)),
        (TRL, "transformers==4.37.2", ("of trl", "both", "int8")),
        (TRL, "transformers==4.37.2\ntrl==0.7.0\npeft==0.5.0", ()),
    ],
)
def test_what_releases_lost_is_silent_and_nothing_else(tmp_path, capsys, program, pin, stay):
    write(tmp_path, {"train.py": program, ".git/config": ""})
    path = str(tmp_path / "train.py")

    def told():
        main(["lint", "--no-cache", "--output-format", "json", "--select", "XLA9", path])
        return {
            item["location"]["row"]
            for item in json.loads(capsys.readouterr().out)
            if item["code"] in {"XLA901", "XLA905", "XLA906", "XLA910"}
        }

    assert told() == lines(program, "# gone", "# stays", "# both")
    write(tmp_path, {"requirements.txt": pin})
    assert told() == (lines(program, *stay) if stay else set())


def test_the_table_names_what_rules_ask_for():
    assert pins.called("lightning") == "Lightning 2"
    for framework in ("transformers", "lightning", "accelerate", "trl", "peft"):
        assert keeps_old((Pin(framework, ("==0.0.1",)),), framework)
