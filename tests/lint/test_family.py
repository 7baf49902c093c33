"""Programs for other members of the family than torch_xla: which they are, what they are told."""

import re
import textwrap
from pathlib import Path

import pytest

from xladoctor import catalogue, config
from xladoctor.cli import lint as command
from xladoctor.lint import engine, family, first_look, sources
from xladoctor.lint.model import FileModel

#: What only programs for torch_xla may be told.
OURS = re.compile(r"\b(torch_xla|xm|xr|xmp|pl|xs)\.|torch_xla")

#: How programs let their user choose.
OPTION = """
    import argparse
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="tpu")
"""

LOOP = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader


    def train(dataset):
        {start}
        device = torch.device({device})
        model = nn.Linear(8, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=32, shuffle=True)
        total = 0.0
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
            seen = x[x > 0].mean()
            print(f"{{step}}: {{loss}}")
        torch.save(model.state_dict(), "model.pt")
        return total
"""


def loop(device, start="pass"):
    return textwrap.dedent(LOOP.format(device=device, start=start))


def linted(text, **options):
    source = sources.from_bytes(textwrap.dedent(text).encode(), "train.py")
    result = engine.lint(source, engine.LintOptions(**options))
    assert result.failures == ()
    return result.findings


def told(text, **options):
    return {item.code for item in linted(text, **options)}


def members(text):
    return FileModel(textwrap.dedent(text)).members


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('import torch\nx = torch.ones(2).to("tpu")\n', {"torch_tpu"}),
        ('import torch\nx = torch.ones(2, device="tpu:0")\n', {"torch_tpu"}),
        ('import torch\nx = torch.ones(2, device="neuron")\n', {"torch_neuron"}),
        ("import torch\nprint(torch.tpu.device_count())\n", {"torch_tpu"}),
        ("import torch\nimport torch_tpu\n", {"torch_tpu"}),
        ("import torch\nimport torchax\ntorchax.enable_globally()\n", {"torchax"}),
        ('import torch.distributed as dist\ndist.init_process_group("tpu_dist")\n', {"torch_tpu"}),
        (
            'import torch.distributed as dist\ndist.init_process_group("cpu:gloo,tpu:tpu_dist")\n',
            {"torch_tpu"},
        ),
        ('import torch\nf = torch.compile(abs, backend="neuron")\n', {"torch_neuron"}),
        ('import torch\ndevice = "tpu" if True else "cpu"\n', {"torch_tpu"}),
        (
            OPTION,
            {"torch_tpu"},
        ),
        # torch_neuronx alone says nothing: its older releases are torch_xla's.
        ("import torch\nimport torch_xla\nimport torch_neuronx\n", {"torch_xla"}),
        ('import torch\nx = torch.ones(2).to("cuda")\n', set()),
        ('import torch\nkind = "tpu"\n', set()),
        ('import jax\nx = jax.device_put(1, device="tpu")\n', set()),
        (
            'import torch\nimport torch_xla\nx = torch.ones(2).to("tpu")\n',
            {"torch_xla", "torch_tpu"},
        ),
        ('import torch\nimport torch_xla\nfrom mine import f\nf(device="tpu")\n', {"torch_xla"}),
        ('import torch\nfrom mine import f\nf(device="tpu")\n', {"torch_tpu"}),
        # What JAX and torchax are told says nothing of torch_xla.
        (
            """
            import jax, torch, torchax
            from transformers import AutoTokenizer
            chip = jax.devices("tpu")[0]
            torch.ones(2).to("jax").apply_jax_(jax.device_put, chip)
            """,
            {"torchax"},
        ),
        (
            """
            import torch, torchax
            from transformers import AutoTokenizer
            kind = "tpu"
            """,
            {"torchax"},
        ),
        (
            """
            import jax, torch
            from transformers import AutoModel
            print(jax.devices("tpu"))
            """,
            set(),
        ),
        (
            """
            import torch
            from transformers import Trainer
            from mine import kind
            print(kind("tpu"))
            """,
            {"torch_xla"},
        ),
        # A setting beside torch_xla chooses torch_xla's TPU.
        ('import torch\nimport torch_xla\ndevice = "tpu"\n', {"torch_xla"}),
    ],
)
def test_what_a_file_is_for(text, found):
    assert members(text) == found


@pytest.mark.parametrize("device", ["tpu", "neuron"])
def test_a_program_is_told_in_its_words(device):
    findings = linted(loop(f'"{device}"'))
    assert {"XLA101", "XLA103", "XLA202", "XLA203", "XLA721"} <= {item.code for item in findings}
    for item in findings:
        said = f"{item.message} {item.suggestion}"
        assert not OURS.search(said), said
        written = "".join(edit.content for edit in item.fix.edits) if item.fix else ""
        assert not OURS.search(written), written


def test_steps_without_a_boundary_are_right_where_nothing_is_recorded():
    assert "XLA301" not in told(loop('"tpu"'))
    with_torch_xla = loop('"xla"').replace("import torch\n", "import torch\nimport torch_xla\n", 1)
    assert "XLA301" in told(with_torch_xla)


def test_a_program_for_cuda_alone_is_told_nothing():
    assert told(loop('"cuda"')) == set()
    assert told(loop('"cuda" if torch.cuda.is_available() else "cpu"')) == set()


def test_the_target_overrides_what_a_file_looks_like():
    anywhere = loop("torch.accelerator.current_accelerator()")
    assert told(anywhere) == set()
    assert {"XLA101", "XLA203"} <= told(anywhere, device="torch_tpu")
    assert "XLA706" in told(loop('"cuda"'), device="torch_tpu")


def test_a_program_for_two_members_hears_of_both():
    text = (
        loop('"tpu" if new else "xla"', "new = bool(1)")
        .replace("import torch\n", "import torch\nimport torch_xla\n", 1)
        .replace("model = nn", "x = torch.ones(2).to('tpu')\n    model = nn", 1)
    )
    by_code = {item.code: item for item in linted(text)}
    read = by_code["XLA101"]
    assert "xm.add_step_closure" in read.suggestion
    assert "; on TorchTPU: " in read.suggestion
    # What closures do is nothing to TorchTPU: no fix writes it there.
    assert read.fix is None
    assert by_code["XLA301"].message.startswith("on torch_xla: ")


def test_conditions_decide_where_code_runs():
    text = """
        import torch


        def train(model, loader, args):
            device = "tpu" if args.use_tpu else "cuda"
            if args.use_tpu:
                compiled = torch.compile(model, dynamic=True)
            else:
                compiled = torch.compile(model, dynamic=True)
            return compiled
    """
    assert [item.locations[0].row for item in linted(text) if item.code == "XLA861"] == [8]


def test_the_names_of_members_are_everywhere_the_same():
    assert tuple(family.members()) == config.TARGETS
    assert tuple(command._TARGETS.choices) == config.TARGETS


def test_the_table_names_rules_and_members_that_exist():
    table = catalogue.table("devices")
    rows = [*table["holds"], *table["own"]]
    codes = [code for row in rows for code in row["codes"]]
    assert set(codes) <= set(catalogue.pages())
    assert {name for row in rows for name in row["members"]} <= set(family.members())
    assert all(row["known"] for row in table["holds"])
    pairs = [(code, name) for row in rows for code in row["codes"] for name in row["members"]]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("member", [each for each in config.TARGETS if each != "torch_xla"])
def test_the_words_of_a_member_are_its_own(member):
    found = family.members()[member]
    for ours, theirs in found.words:
        assert not OURS.search(theirs), (ours, theirs)
    # Longer words first: else a part of them is replaced before.
    for number, (ours, _) in enumerate(found.words):
        assert not any(earlier in ours for earlier, _ in found.words[:number]), ours


MEDIAN = """
    import torch
    from torch import nn
    import torch.nn.functional as F


    def train(model, loader, optimizer):
        device = torch.device("tpu")
        model.to(device)
        mish = nn.Mish()
        smooth = nn.SmoothL1Loss()
        table = torch.randn(100, 4, device=device)
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            middle = torch.median(x)
            counted = torch.bincount(y, minlength=10)
            loss = smooth(model(x), y)
            loss.backward()
            optimizer.step()
            row = table[step]
            power = table**step
"""


def test_operations_without_a_kernel_are_those_of_torchtpu():
    findings = [item for item in linted(MEDIAN) if item.code == "XLA501"]
    # bincount has a kernel there, and smooth_l1_loss has none: the other way round on torch_xla.
    assert [item.locations[0].row for item in findings] == [15, 17]
    assert "aten::median.dim_values): it raises RuntimeError" in findings[0].message
    for item in findings:
        assert item.fix is None
        assert "smooth_l1" not in item.suggestion
    other = MEDIAN.replace('torch.device("tpu")', "torch_xla.device()").replace(
        "import torch\n", "import torch\n    import torch_xla\n", 1
    )
    rows = [item.locations[0].row for item in linted(other) if item.code == "XLA501"]
    assert rows == [16, 17]


def test_indices_are_constants_there_and_exponents_are_not():
    rows = [item.locations[0].row for item in linted(MEDIAN) if item.code == "XLA205"]
    assert rows == [20]


def test_what_was_measured_names_idioms_and_rows_what_was_measured():
    from xladoctor.probe.idioms import idioms

    table = catalogue.table("ops_torch_tpu")
    names = {idiom.name for idiom in idioms()}
    assert {*table["missing"], *table["recompiles"]} <= names
    assert all(name in table["missing"] for row in table["call"] for name in row["measured"])
    functions = [
        name for row in table["call"] if "when" not in row for name in row.get("functions", ())
    ]
    assert len(functions) == len(set(functions))


SAMPLES = sorted((Path(__file__).resolve().parents[2] / "sample_runs").glob("*/on_torchtpu.py"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_a_moved_sample_needs_nothing_of_torch_xla(path):
    text = path.read_text()
    assert "torch_xla" not in text
    assert linted(text) == linted(text, device="torch_tpu") == ()
    assert members(text) == {"torch_tpu"}


def test_four_samples_were_moved():
    assert len(SAMPLES) == 4


def test_switches_for_faults_are_those_of_the_device():
    text = """
        import os
        import torch
        import torch_tpu._internal.execution_mode as em

        os.environ["TORCH_TPU_ENABLE_DEBUG_CHECKS"] = "1"
        os.environ["XLA_IR_DEBUG"] = "1"
        em.enable_cpu_fallback = True
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING
        if os.environ.get("DEBUG"):
            os.environ["TORCH_TPU_LAUNCH_BLOCKING"] = "1"
    """
    rows = [item.locations[0].row for item in linted(text) if item.code == "XLA714"]
    assert rows == [6, 8, 10]


def test_what_makes_a_file_one_for_devices_is_seen_before_it_is_parsed() -> None:
    for member in family.members().values():
        for name in (*member.imports, *member.names):
            assert first_look.BINDS.search(name), name
    bad = [
        (page.code, example.source)
        for page in catalogue.pages().values()
        for example in page.examples
        if example.kind == "bad" and page.code != "XLA001"
    ]
    assert len(bad) > 100
    assert [code for code, source in bad if not first_look.may_concern_us(source)] == []


def test_a_file_that_only_speaks_of_devices_is_left_to_pythons_parser() -> None:
    text = '"""Kernels for TPUs, as XLA compiles them."""\nimport jax\n'
    assert not first_look.may_concern_us(text)
    [found] = engine.lint(sources.Source("kernel.py", text + "x = = 1\n")).findings
    assert (found.code, found.locations[0].row) == ("XLA001", 3)
