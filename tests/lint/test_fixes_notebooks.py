"""Shell lines and magics of notebooks, as old tutorials have them: what the fixes make of them."""

import json

import pytest

from xladoctor.cli.app import main
from xladoctor.lint import engine, fixes, notebooks, sources

PIP = "!pip install torch==2.9.0 'torch_xla[tpu]==2.9.0'"
WHEELS = "https://storage.googleapis.com/tpu-pytorch/wheels"


def fixed(*cells, unsafe=True, target=None):
    """The sources of the cells after the fixes; all else in the file must be as it was."""
    document = {
        "cells": [
            {"cell_type": "code", "execution_count": 1, "outputs": [{"text": "\u00f6"}],
             "source": cell.splitlines(keepends=True)}
            for cell in cells
        ],
        "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4, "nbformat_minor": 4,
    }  # fmt: skip
    data = json.dumps(document, indent=1).encode()
    options = engine.LintOptions() if target is None else engine.LintOptions(target=target)
    done = fixes.fix(data, "n.ipynb", lambda source: engine.lint(source, options), unsafe=unsafe)
    assert done.stable
    assert done.result.failures == ()
    after = json.loads(done.data)
    texts = ["".join(cell.pop("source")) for cell in after["cells"]]
    for cell in document["cells"]:
        del cell["source"]
    assert after == document
    assert sources.from_bytes(done.data, "n.ipynb").unreadable == ()
    return texts if len(texts) > 1 else texts[0]


def test_the_first_cell_of_a_kaggle_notebook():
    url = "https://raw.githubusercontent.com/pytorch/xla/master/contrib/scripts/env-setup.py"
    cells = fixed(
        f"!curl {url} -o pytorch-xla-env-setup.py\n"
        "!python pytorch-xla-env-setup.py --version 20200325 --apt-packages libomp5\n"
        "!pip install timm\n",
        "import torch_xla\n",
    )
    assert cells == [
        f"# !curl {url} -o pytorch-xla-env-setup.py\n{PIP}\n!pip install timm\n",
        "import torch_xla\n",
    ]


def test_the_first_cell_of_a_colab_notebook():
    wheel = f"{WHEELS}/torch_xla-1.9-cp37-cp37m-linux_x86_64.whl"
    cell = (
        "import os\nassert os.environ['COLAB_TPU_ADDR'], 'Select a TPU'\n"
        f"!pip install cloud-tpu-client==0.10 torch==1.9.0 {wheel}"
    )
    assert fixed(cell) == f"import os\n{PIP}"


def test_an_older_target_is_installed_with_its_own_version():
    text = fixed(
        f"!pip install -q {WHEELS}/torch_xla-1.13-cp38-cp38-linux_x86_64.whl", target=(2, 5)
    )
    assert text == (
        "!pip install torch==2.5.0 'torch_xla[tpu]==2.5.0' "
        "-f https://storage.googleapis.com/libtpu-releases/index.html"
    )


def test_what_is_installed_already_is_not_installed_again():
    assert fixed(f"{PIP}\n!pip install cloud-tpu-client==0.10\n") == (
        f"{PIP}\n# !pip install cloud-tpu-client==0.10\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "!pip install cloud-tpu-client==0.10 albumentations",  # something else, too
        "!cd /tmp && python pytorch-xla-env-setup.py --version 1.7",
        "!python pytorch-xla-env-setup.py --version $VERSION | tail -1",
        "out = !pip install cloud-tpu-client==0.10",
        "!pip install cloud-tpu-client==0.10 \\\n    torch==1.9",
        "!pip install -r requirements.txt cloud-tpu-client==0.10",
        "%%bash\nset -e\ncurl -O https://x.y/env-setup.py; ls",
    ],
)
def test_lines_that_do_more_are_left_alone(line):
    assert fixed(line) == line


def test_a_cell_of_bash_is_fixed_as_bash():
    cells = fixed("%%bash\nset -e\npip install cloud-tpu-client==0.10\n", "import torch_xla\n")
    assert cells[0] == f"%%bash\nset -e\n{PIP[1:]}\n"


def test_lines_in_a_block_keep_their_indent():
    text = fixed("x = 1\nif x:\n    !pip install cloud-tpu-client==0.10\n    print(x)\n")
    assert text == f"x = 1\nif x:\n    {PIP}\n    print(x)\n"
    # A comment cannot stand for the only line of a block.
    alone = f"{PIP}\nif True:\n    !pip install cloud-tpu-client==0.10\n"
    assert fixed(alone) == alone


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("%env XRT_TPU_CONFIG=tpu_worker;0;10.0.0.2:8470", True),
        ("!export XRT_TPU_CONFIG=tpu_worker; python train.py", False),  # another command, too
        ("%env XRT_WORKERS localservice:0", True),
        ("%set_env TPU_NUM_DEVICES=8", None),
        ("!export XRT_WORKERS=localservice:0", True),
        ("!export XLA_USE_BF16=1", True),  # a shell of its own, gone after the line
        ("!export PJRT_DEVICE=TPU", True),
        ("!export PJRT_DEVICE=TPU && python train.py", None),
    ],
)
def test_variables_that_do_nothing_are_commented_out(line, safe):
    found = engine.lint(
        sources.from_bytes(
            json.dumps(
                {"cells": [{"cell_type": "code", "source": line}], "metadata": {}, "nbformat": 4}
            ).encode(),
            "n.ipynb",
        )
    ).findings
    codes = [item.code for item in found]
    assert codes == ([] if safe is None else ["XLA701"])
    assert fixed(line, unsafe=False) == (f"# {line}" if safe else line)


def test_bfloat16_behind_the_programs_back_is_taken_away_when_asked_to():
    cells = ("%env XLA_USE_BF16=1\n", "import torch_xla\n")
    assert fixed(*cells, unsafe=False) == list(cells)
    assert fixed(*cells) == ["# %env XLA_USE_BF16=1\n", "import torch_xla\n"]


#: One safe and one unsafe fix, in a cell of each of the forms that notebooks have had.
STEP = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
def train(model, loader, optimizer):
    for x in pl.MpDeviceLoader(loader, xm.xla_device()):
        loss = model(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        print(loss.item())
"""


def written_as(form):
    cell = {"cell_type": "code", "metadata": {}, "outputs": []}
    lines = STEP.splitlines(keepends=True)
    if form == "3":
        sheets = [{"cells": [cell | {"input": lines, "language": "python"}], "metadata": {}}]
        return {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": sheets}
    key, source = {
        "4": ("source", lines), "4, a text": ("source", STEP), "4, of old names": ("input", STEP),
    }[form]  # fmt: skip
    return {"cells": [cell | {key: source}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


@pytest.mark.parametrize("form", ["3", "4", "4, a text", "4, of old names"])
def test_what_is_said_before_and_after_the_fixes_agrees(form, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(written_as(form)))

    def said(*flags):
        main(["lint", "--no-cache", "--output-format", "concise", *flags, "n.ipynb"])
        return capsys.readouterr().err.strip()

    first = "1 can be fixed with --fix. 1 more with --fix --unsafe-fixes."
    assert said() == f"Found 2 findings: 1 warning, 1 info. {first}"
    left = "(1 fixed, 1 left): 1 warning. 1 more with --fix --unsafe-fixes."
    assert said("--fix") == f"Found 2 findings {left}"
    assert said("--fix", "--unsafe-fixes") == "Fixed 1 finding, none left."
    assert said() == "All checks passed!"
    text = path.read_text()
    assert "torch_xla.device()" in text
    assert "xm.add_step_closure(lambda loss: print(loss.item())" in text


def test_a_fix_that_cannot_be_made_is_not_promised_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.ipynb").write_text(json.dumps(written_as("4")))
    monkeypatch.setattr(notebooks, "replace_sources", lambda data, changes: None)
    main(["lint", "--no-cache", "--fix", "--unsafe-fixes", "n.ipynb"])
    said = capsys.readouterr()
    assert "can be fixed" not in said.err
    assert "[*]" not in said.out
