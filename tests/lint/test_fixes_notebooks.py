"""Shell lines and magics of notebooks, as old tutorials have them: what the fixes make of them."""

import json

import pytest

from xladoctor.lint import engine, fixes, sources

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
