"""What settings of a project start its programs on, where no Python file says it."""

from __future__ import annotations

import json
import textwrap

import pytest

from xladoctor.cli.app import main
from xladoctor.lint.launches import Launches
from xladoctor.lint.looked import Looked

MODULE = """\
import lightning as L
from torch import nn

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 2)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layer(x), y)
        print(loss.item())
        return loss
"""
HYDRA = "_target_: lightning.Trainer\naccelerator: {}\ndevices: 8\n"
FSDP = "distributed_type: FSDP\n"
SETTINGS = {
    "Lightning's": ({"conf/trainer/default.yaml": HYDRA.format("tpu")}, True),
    "in quotes": ({"config.yaml": 'trainer:\n  accelerator: "tpu"  # or gpu\n'}, True),
    "Hydra's choice": ({"conf/config.yaml": "defaults:\n  - trainer: tpu\n"}, True),
    "Accelerate's": ({"tpu/accelerate.yaml": "distributed_type: XLA\nnum_machines: 1\n"}, True),
    "a launcher's line": ({"run.sh": "accelerate launch --tpu train.py --epochs 3\n"}, True),
    "the launcher of the examples": ({"run.sh": "python xla_spawn.py --num_cores 8 a.py\n"}, True),
    "Hydra on the line": ({"go.sh": "python train.py trainer.accelerator=tpu\n"}, True),
    "the processor too": (
        {f"{one}.yaml": HYDRA.format(one) for one in ("auto", "cpu", "tpu")},
        True,
    ),
    "FSDP of torch_xla": ({"tpu_fsdp.yaml": FSDP, "a.yaml": "device: xla\n"}, True),
    "FSDP of PyTorch": ({"fsdp.yaml": FSDP, "a.yaml": "device: xla\n"}, False),
    "GPUs too": ({"a.yaml": HYDRA.format("tpu"), "b.yaml": HYDRA.format("gpu")}, False),
    "GPUs too, on a line": ({"a.yaml": HYDRA.format("tpu"), "run.sh": "nvidia-smi\n"}, False),
    "files for each": (
        {f"conf/trainer/{one}.yaml": HYDRA.format(one) for one in ("tpu", "gpu")},
        True,
    ),
    "cores of TPUs beside GPUs": (
        {"conf/tpu_ddp.yaml": "tpu_cores: 8\n", "a.sh": "python a.py --gpus 8\n"},
        True,
    ),
    "one of many files": (
        {f"conf/a/{n}.yaml": HYDRA.format("gpu") for n in range(60)}
        | {"conf/a/tpu.yaml": HYDRA.format("tpu")},
        True,
    ),
    "settings that are called so": ({"conf/tpu.yml": "batch: 8\n", "a.sh": "nvidia-smi\n"}, True),
    "what is installed": ({"setup.sh": "pip install torch-xla[tpu]\n", "a.sh": "--gpus 8\n"}, True),
    "what is required": ({"requirements_tpu.txt": "torch_xla==2.9\n", "a.sh": "--gpus 8\n"}, True),
    "all that was installed": (
        {"requirements.txt": "a==1\n" * 200 + "torch-xla==2.9\n", "a.sh": "nvidia-smi\n"},
        False,
    ),
    "what isort calls a package of others": (
        {"setup.cfg": "[isort]\nknown_third_party =\n    torch_xla\n\n[metadata]\nname = a\n"},
        False,
    ),
    "what mypy leaves out": (
        {"pyproject.toml": "[project]\nname='a'\n[[tool.mypy.overrides]]\nmodule=['torch_xla']\n"},
        False,
    ),
    "required beside a tool's table": (
        {"setup.cfg": "[isort]\nx=1\n[options]\ninstall_requires =\n    torch_xla\n"},
        True,
    ),
    "an extra": ({"setup.py": "extras = {'tpu': ['torch_xla']}\n", "a.sh": "--gpus 8\n"}, True),
    "how an image is made": ({"Dockerfile": "RUN pip install torch-xla\n"}, True),
    "what make runs": ({"Makefile": "train:\n\tpython a.py --accelerator tpu\n"}, True),
    "no cores of TPUs": ({"conf/trainer/default.yaml": "gpus: 0\ntpu_cores: 0\n"}, False),
    "lines for each": (
        {"run.sh": "python a.py --gpus 2\npython a.py trainer.gpus=0 +trainer.tpu_cores=8\n"},
        True,
    ),
    "lines for GPUs": ({"run.sh": "python a.py --gpus 2 trainer.tpu_cores=null\n"}, False),
    "a line that is left out": ({"run.sh": "python a.py --gpus 2\n# python a.py --tpu\n"}, False),
    "machines with TPUs": (
        {
            "up.sh": "gcloud compute tpus tpu-vm create x --version=tpu-vm-pt-2.0\n",
            "a.sh": "nvidia-smi\n",
        },
        True,
    ),
    "GPUs": ({"conf/trainer/default.yaml": HYDRA.format("gpu")}, False),
    "a comment": ({"a.yaml": "# accelerator: tpu\naccelerator: auto\n"}, False),
    "machines": ({"job.yaml": "apiVersion: v1\nspec:\n  accelerator: tpu\n"}, False),
    "what an environment holds": ({"venv/lib/a.yaml": HYDRA.format("tpu")}, False),
    "a copy of a library": ({"transformers-4.2.1/run_tpu.sh": "python xla_spawn.py a.py\n"}, False),
    "hidden": ({".old/a.yaml": HYDRA.format("tpu")}, False),
    "another kind of file": ({"a.json": '{"accelerator": "tpu"}'}, False),
    "bytes": ({"a.yaml": b"\xff\xfeaccelerator: tpu\n"}, False),
    "too large to be settings": ({"a.yaml": HYDRA.format("tpu") + "#" * 2**17}, False),
    "nothing": ({}, False),
}  # fmt: skip


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_that_agree_on_tpus_count(case, tmp_path):
    files, said = SETTINGS[case]
    write(tmp_path, {"requirements.txt": "lightning\n", "src/net.py": MODULE, **files})
    found = Launches(Looked(0), str(tmp_path))
    assert found.of(str(tmp_path / "src")).on_tpus is said
    assert found.of(str(tmp_path)).on_tpus is said


def test_of_a_folder_that_is_no_project_only_settings_are_entered(tmp_path):
    write(tmp_path, {"net.py": MODULE, "other/a.yaml": HYDRA.format("tpu")})
    assert not Launches(Looked(0), str(tmp_path)).of(str(tmp_path)).on_tpus
    write(tmp_path, {"configs/a.yaml": HYDRA.format("tpu")})
    assert Launches(Looked(0), str(tmp_path)).of(str(tmp_path)).on_tpus


def test_what_is_written_for_a_part_of_a_project_says_nothing_of_the_others(tmp_path):
    script = "python a.py --accelerator tpu\n"
    write(tmp_path, {".git/HEAD": "", "text/docker/run.sh": script, "images/a.sh": "nvidia-smi\n"})
    write(tmp_path, {"text/net.py": MODULE, "images/net.py": MODULE})
    found = Launches(Looked(0), str(tmp_path))
    assert found.of(str(tmp_path / "text")).on_tpus
    assert not found.of(str(tmp_path / "images")).on_tpus
    assert not found.of(str(tmp_path)).on_tpus
    write(tmp_path, {"scripts/install.sh": "pip install torch_xla\n"})
    assert Launches(Looked(0), str(tmp_path)).of(str(tmp_path / "images")).on_tpus


def lint(capsys, *given):
    assert main(["lint", *map(str, given), "--output-format", "json"]) in {0, 1}
    return {item["code"] for item in json.loads(capsys.readouterr().out)}


def test_modules_of_a_project_for_tpus_are_linted_and_not_those_of_another(capsys, tmp_path):
    settings = tmp_path / "conf" / "trainer.yaml"
    write(tmp_path, {"pyproject.toml": "", "src/net.py": MODULE})
    write(tmp_path, {"conf/trainer.yaml": HYDRA.format("gpu")})
    assert lint(capsys, tmp_path) == set()
    settings.write_text(HYDRA.format("tpu"))  # the second run knows what the first one looked at
    assert "XLA101" in lint(capsys, tmp_path)
    assert "XLA101" in lint(capsys, tmp_path / "src" / "net.py")
    settings.write_text(HYDRA.format("gpu"))
    assert lint(capsys, tmp_path) == set()


def test_what_a_module_of_such_a_project_imports_is_linted_with_it(capsys, tmp_path):
    step = """\
    def step(layer, batch):
        x, y = batch
        loss = layer(x).sub(y).pow(2).mean()
        print(loss.item())
        return loss
    """
    module = MODULE.replace("from torch import nn", "from torch import nn\nfrom step import step")
    module = module.partition("        x, y")[0] + "        return step(self.layer, batch)\n"
    write(tmp_path, {"pyproject.toml": "", "net.py": module, "step.py": textwrap.dedent(step)})
    assert lint(capsys, tmp_path) == set()
    write(tmp_path, {"trainer.yaml": HYDRA.format("tpu")})
    assert "XLA101" in lint(capsys, tmp_path)


SAYING = {
    "a setting": (
        {"conf/base.yaml": "seed: 1\n# on TPUs\naccelerator: tpu\n"},
        "conf/base.yaml",
        3,
    ),
    "a file called so": (
        {"conf/tpu.yaml": "devices: 8\n", "conf/gpu.yaml": "accelerator: gpu\n"},
        "conf/tpu.yaml",
        1,
    ),
    "a shell line": (
        {"run.sh": "set -e\npython net.py trainer.tpu_cores=8\n", "a.yaml": "accelerator: gpu\n"},
        "run.sh",
        2,
    ),
    "the first word of a script": (
        {"run.sh": "PJRT_DEVICE=TPU python net.py\npython xla_spawn.py\n"},
        "run.sh",
        1,
    ),
    "what is required": (
        {"requirements.txt": "lightning\ntorch_xla==2.9\n"},
        "requirements.txt",
        2,
    ),
    "a file called so before others": (
        {"a.yaml": "accelerator: tpu\n", "tpu.yaml": "x: 1\naccelerator: tpu\n"},
        "tpu.yaml",
        2,
    ),
}


@pytest.mark.parametrize("case", SAYING)
def test_findings_name_the_setting_that_starts_the_program_on_tpus(
    case, capsys, tmp_path, monkeypatch
):
    files, name, row = SAYING[case]
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"pyproject.toml": "", "net.py": MODULE, **files})
    main(["lint", "net.py", "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found
    for item in found:
        last = item["related"][-1]
        assert last["message"] == "this starts the program on TPUs"
        assert (last["filename"], last["location"]["row"]) == (name, row)


def test_a_file_that_names_the_device_itself_needs_no_setting(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = MODULE + 'L.Trainer(accelerator="tpu").fit(Net())\n'
    write(tmp_path, {"pyproject.toml": "", "net.py": module, "tpu.yaml": "accelerator: tpu\n"})
    main(["lint", "net.py", "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found
    places = [other for item in found for other in item["related"]]
    assert not any(one["message"].startswith("this starts") for one in places)


def test_a_file_that_asks_for_gpus_itself_is_for_gpus(capsys, tmp_path):
    script = MODULE + 'L.Trainer(accelerator="gpu").fit(Net())\n'
    write(tmp_path, {"pyproject.toml": "", "a.yaml": HYDRA.format("tpu"), "net.py": script})
    assert lint(capsys, tmp_path) == set()


COUNTED = {
    "a number": ({"conf/tpu.yaml": HYDRA.format("tpu")}, True),
    "one": ({"conf/tpu.yaml": "accelerator: tpu\ndevices: 1\n"}, False),
    "all": ({"conf/tpu.yaml": "accelerator: tpu\ntpus: -1\n"}, True),
    "auto": ({"conf/tpu.yaml": 'accelerator: tpu\ndevices: "auto"\n'}, True),
    "nothing": ({"conf/tpu.yaml": "accelerator: tpu\n"}, True),
    "one of another file": (
        {"conf/default.yaml": "devices: 1\n", "conf/tpu.yaml": "accelerator: tpu\n"},
        False,
    ),
    "one for GPUs": (
        {"conf/gpu.yaml": "accelerator: gpu\ndevices: 1\n", "conf/tpu.yaml": HYDRA.format("tpu")},
        True,
    ),
    "a line": ({"run.sh": "python fit.py trainer.accelerator=tpu trainer.devices=8\n"}, True),
    "a line for one": ({"run.sh": "a.py trainer.accelerator=tpu trainer.devices=1\n"}, False),
    "a comment": ({"conf/tpu.yaml": "accelerator: tpu\ndevices: 1\n# devices: 8\n"}, False),
    "no TPUs": ({"conf/gpu.yaml": HYDRA.format("gpu")}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTED)
def test_settings_say_how_many_cores_there_are(case, tmp_path):
    files, several = COUNTED[case]
    write(tmp_path, {"requirements.txt": "lightning\n", **files})
    assert Launches(Looked(0), str(tmp_path)).of(str(tmp_path)).several is several


@pytest.mark.parametrize(
    ("files", "others"),
    [
        ({"conf/trainer.yaml": HYDRA.format("tpu")}, False),
        ({"run.sh": "python xla_spawn.py --num_cores 8 a.py\n"}, False),
        ({"conf/trainer/tpu.yaml": HYDRA.format("tpu")}, True),
        ({"run.sh": "python a.py --gpus 2\npython a.py +trainer.tpu_cores=8\n"}, True),
    ],
)
def test_settings_say_whether_there_are_other_devices_too(files, others, tmp_path):
    write(tmp_path, {"requirements.txt": "lightning\n", **files})
    assert Launches(Looked(0), str(tmp_path)).of(str(tmp_path)).on_others is others


EVALUATED = MODULE + """\

    def validation_step(self, batch, batch_idx):
        x, y = batch
        {logged}
        with open("scores.txt", "a") as file:
            file.write("one more")
"""  # fmt: skip
LOSS = "nn.functional.cross_entropy(self.layer(x), y)"
LOGGED = [
    f'self.log("val_loss", {LOSS})',
    f'scores = {{"val_loss": {LOSS}}}\n        self.log_dict(scores, on_epoch=True)',
    "self.log_dict(self.scores(self.layer(x).argmax(1), y))",
]


@pytest.mark.parametrize("logged", LOGGED)
@pytest.mark.parametrize(
    ("settings", "script", "several"),
    [
        (HYDRA.format("tpu"), "", True),
        ("accelerator: tpu\ndevices: 1\n", "", False),
        (HYDRA.format("tpu"), "L.Trainer(accelerator='tpu', devices=1).fit(Net())\n", False),
        (HYDRA.format("gpu"), "", False),
    ],
)
def test_a_trainer_made_of_settings_has_several_cores(
    logged, settings, script, several, capsys, tmp_path
):
    text = EVALUATED.replace("{logged}", logged) + script
    write(tmp_path, {"pyproject.toml": "", "conf/trainer.yaml": settings, "net.py": text})
    told = lint(capsys, tmp_path) & {"XLA406", "XLA427"}
    assert told == ({"XLA406", "XLA427"} if several else set())


DATA = """\
import lightning as L
from torch.utils.data import DataLoader

class Pages(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(self.pages, 32, pin_memory=True, num_workers=4, drop_last=True)
"""


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"conf/trainer.yaml": HYDRA.format("tpu")}, True),
        ({"conf/trainer/tpu.yaml": HYDRA.format("tpu")}, False),
        (
            {f"conf/trainer/{one}.yaml": HYDRA.format(one) for one in ("tpu", "gpu")},
            False,
        ),
    ],
)
def test_data_for_any_device_may_be_pinned(files, told, capsys, tmp_path):
    write(tmp_path, {"pyproject.toml": "", "pages.py": DATA, **files})
    assert ("XLA718" in lint(capsys, tmp_path)) is told


RUN = """\
import hydra
from lightning.pytorch import LightningModule, Trainer

def run(config):
    net: LightningModule = hydra.utils.instantiate(config.net)
    {line}
    {made}
    trainer.fit(net)
"""
OF_SETTINGS = (
    'trainer: Trainer = hydra.utils.instantiate(config.trainer, logger=False, _convert_="all")'
)


@pytest.mark.parametrize(
    ("line", "made", "told"),
    [
        ("config.trainer.resume_from_checkpoint = 'last.ckpt'", OF_SETTINGS, True),
        ("pass", OF_SETTINGS.replace("logger", "weights_summary"), True),
        ("config.trainer.max_epochs = 3", OF_SETTINGS, False),
        ("config.net.resume_from_checkpoint = 'last.ckpt'", OF_SETTINGS, False),
        (
            "config.trainer.resume_from_checkpoint = 'last.ckpt'",
            OF_SETTINGS.replace(": Trainer", ""),
            False,
        ),
    ],
)
def test_what_a_program_sets_of_the_trainers_settings(line, made, told, capsys, tmp_path):
    text = RUN.replace("{line}", line).replace("{made}", made)
    write(tmp_path, {"pyproject.toml": "", "run.py": text, "conf/a.yaml": HYDRA.format("tpu")})
    assert ("XLA901" in lint(capsys, tmp_path)) is told
    write(tmp_path, {"requirements.txt": "pytorch-lightning<1.6\n"})
    assert "XLA901" not in lint(capsys, tmp_path)
