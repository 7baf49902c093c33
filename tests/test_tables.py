"""The fact tables are consistent, and true of the installed torch_xla."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import textwrap
import typing

import pytest

from xladoctor import catalogue
from xladoctor.lint import engine, fixes, sources


def _printed(program, **variables):
    """What a program prints in a process of its own, with torch_xla on the CPU."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PJRT_DEVICE": "CPU", **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout


def _version(text):
    return tuple(int(part) for part in text.split("."))


def test_api_rows_are_consistent():
    rows = catalogue.table("api")["name"]
    assert len({row["old"] for row in rows}) == len(rows)
    for row in rows:
        assert row["arguments"] in {"same", "drop", "first", "none"}, row
        assert ("removed_in" in row or "deprecated_in" in row) != ("never" in row), row
        assert "new" in row or row.get("advice"), row
        assert ("new" in row) == ("since" in row), row
        if "removed_in" in row and "deprecated_in" in row:
            assert _version(row["deprecated_in"]) < _version(row["removed_in"]), row
        if row["arguments"] != "none":
            assert "new" in row, row


def _use(row):
    """A program that uses what a row names, as programs do."""
    module, _, name = row["old"].rpartition(".")
    if row["kind"] == "module":
        if not row.get("names"):
            return f"import torch_xla\nimport {row['old']} as old\nold.thing()\n"
        return f"import torch_xla\nimport {row['old']} as old\nold.{row['names'][0]}(*given)\n"
    return f"import torch_xla\nimport {module} as old\nvalue = old.{name}()\n"


@pytest.mark.parametrize("row", catalogue.table("api")["name"], ids=lambda row: row["old"])
def test_every_row_of_the_api_table_is_fixed_or_says_why_not(row):
    codes = frozenset({"XLA801", "XLA802"})
    text = _use(row)

    def lint(source):
        return engine.lint(source, engine.LintOptions(codes=codes))

    done = fixes.fix(text.encode(), "use.py", lint)
    assert lint(sources.from_bytes(text.encode(), "use.py")).findings, "no rule sees the row"
    if row.get("no_fix"):
        assert done.applied == 0
        assert row["advice"]
    else:
        assert done.result.findings == ()
        new = row.get("always") or row["new"].rpartition(".")[2]
        assert new in done.data.decode() or row["new"] in done.data.decode()


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import using_pjrt\nfrom torch_xla.runtime import world_size", "using_pjrt()"),
        ("import using_pjrt as pjrt, world_size", "pjrt()"),
        ("import world_size, using_pjrt", "using_pjrt()"),
    ],
)
def test_an_import_of_what_was_always_true_goes(imports, call):
    use = "\n\nif {}:\n    print(world_size())\n"
    text = f"import torch_xla\nfrom torch_xla.runtime {imports}{use.format(call)}"
    codes = engine.LintOptions(codes=frozenset({"XLA801"}))
    done = fixes.fix(text.encode(), "use.py", lambda source: engine.lint(source, codes))
    after = f"import torch_xla\nfrom torch_xla.runtime import world_size{use.format('True')}"
    assert done.data.decode() == after


@pytest.mark.parametrize(
    "row", catalogue.table("environment")["variable"], ids=lambda row: row["name"]
)
def test_every_environment_variable_is_deleted(row):
    name = row["name"].replace("*", "ANYTHING")
    line = f'os.environ["{name}"] = "1"'
    if row["status"] == "gone":
        line = f'assert os.environ["{name}"]'
    text = f"import os\nimport torch_xla\n{line}\nprint(1)\n"

    def lint(source):
        return engine.lint(source, engine.LintOptions(codes=frozenset({"XLA701"})))

    done = fixes.fix(text.encode(), "use.py", lint, unsafe=True)
    assert done.data.decode() == text.replace(f"{line}\n", "")
    # Those that still do something are only deleted when asked to.
    safe = fixes.fix(text.encode(), "use.py", lint).applied == 1
    assert safe == (row["status"] != "deprecated")


def test_fallbacks_are_measured():
    table = catalogue.table("ops")
    measured = {row["name"]: row for row in table["measured"]}
    assert len(measured) == len(table["measured"])
    for call in table["call"]:
        assert {"functions", "methods", "modules"} & set(call), call
        for name in call["measured"]:
            assert measured[name]["fallback"], name


def test_environment_rows_say_what_to_do():
    for row in catalogue.table("environment")["variable"]:
        assert row["status"] in {"dead", "deprecated", "gone"}, row
        assert ("dead_in" in row) == (row["status"] == "dead"), row
        assert row["effect"]


def _has(dotted):
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_api_table_is_true_of_the_installed_torch_xla(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    torch_xla = pytest.importorskip("torch_xla")
    torch = pytest.importorskip("torch")
    installed = _version(torch_xla.__version__.partition("+")[0])[:2]
    wrong = []
    for row in catalogue.table("api")["name"]:
        removed = "never" in row or (
            "removed_in" in row and installed >= _version(row["removed_in"])
        )
        if row.get("stub"):
            given = [torch.eye(2)] * (2 if row["old"] in {"torch.solve", "torch.lstsq"} else 1)
            with pytest.raises(RuntimeError, match="removed"):
                getattr(torch, row["old"].rpartition(".")[2])(*given)
        elif _has(row["old"]) == removed:
            wrong.append((row["old"], "should be gone" if removed else "should be there"))
        wrong += (
            [
                (name, "replacement is missing")
                for name in [row.get("new"), *(f"{row['new']}.{n}" for n in row.get("names", ()))]
                if name is not None and installed >= _version(row["since"]) and not _has(name)
            ]
            if "new" in row
            else []
        )
    assert wrong == []


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_ties_to_torch_xla_are_names_that_it_has_or_had(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    pytest.importorskip("torch_xla")
    removed = {row["old"] for row in catalogue.table("api")["name"] if "removed_in" in row}
    names = {name for row in catalogue.table("torch_tpu")["use"] for name in row["names"]}
    modules = {name.removesuffix(".*") for name in names}
    wrong = {name for name in modules - removed if not _has(name)}
    # What is experimental comes and goes; the table holds what programs of 2.0 to 2.9 import.
    assert {name for name in wrong if not name.startswith("torch_xla.experimental.")} == set()


@pytest.mark.xla
@pytest.mark.parametrize(("variable", "acts"), [("XLA_USE_BF16", True), ("XLA_USE_FP16", False)])
def test_sixteen_bit_switches_do_what_the_table_says(variable, acts):
    pytest.importorskip("torch_xla")
    program = """
        import torch, torch_xla
        tensor = torch.tensor([1.001], device=torch_xla.device())
        print(tensor.dtype, tensor.item() == 1.0)
    """
    printed = _printed(program, **{variable: "1"})
    assert printed.splitlines()[-1] == f"torch.float32 {acts}"
    row = next(r for r in catalogue.table("environment")["variable"] if r["name"] == variable)
    assert (row["status"] == "deprecated") is acts


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_replacements_of_fallback_operations_compute_the_same():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    torch.manual_seed(0)
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    labels = torch.randint(0, 5, (20,))
    edges = torch.tensor([-1.0, 0.0, 0.5])
    image = torch.randn(2, 6, 3, 3)
    same = {
        "bincount": (
            torch.bincount(labels, minlength=5),
            (labels[:, None] == torch.arange(5)).sum(0),
        ),
        "isin": (
            torch.isin(labels, labels[:2]),
            (labels[..., None] == labels[:2]).any(-1),
        ),
        "bucketize": (torch.bucketize(x, edges), (x[..., None] > edges).sum(-1)),
        "searchsorted": (torch.searchsorted(edges, x), (x[..., None] > edges).sum(-1)),
        "median": (
            torch.median(x, -1).values,
            torch.sort(x).values[..., (x.size(-1) - 1) // 2],
        ),
        "huber": (
            functional.huber_loss(x, y, delta=0.3),
            0.3 * functional.smooth_l1_loss(x, y, beta=0.3),
        ),
        "hypot": (torch.hypot(x, y), torch.sqrt(x * x + y * y)),
        "logaddexp": (torch.logaddexp(x, y), torch.logsumexp(torch.stack((x, y)), 0)),
        "channel shuffle": (
            functional.channel_shuffle(image, 2),
            image.view(2, 2, 3, 3, 3).transpose(1, 2).reshape(2, 6, 3, 3),
        ),
    }
    for name, (operation, replacement) in same.items():
        torch.testing.assert_close(replacement, operation, msg=name)


@pytest.mark.xla
def test_what_the_installed_torch_xla_warns_about_and_refuses():
    pytest.importorskip("torch_xla")
    program = """
        import warnings
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        for call in (xm.xla_device, xm.mark_step, xm.get_local_ordinal, torch_xla.sync):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                call()
            print(call.__name__, any(w.category is DeprecationWarning for w in seen))
        try:
            xmp.spawn(print, nprocs=8)
        except ValueError as error:
            print(error)
    """
    printed = _printed(program)
    lines = printed.splitlines()
    assert lines[:4] == [
        "xla_device True",
        "mark_step True",
        "get_local_ordinal False",
        "sync False",
    ]
    assert lines[4].startswith("Unsupported nprocs")


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_operations_that_fall_back_are_spelled_as_torch_spells_them():
    torch = pytest.importorskip("torch")
    for call in catalogue.table("ops")["call"]:
        for name in [*call.get("functions", ()), *call.get("modules", ())]:
            # torchaudio's and torchvision's layers run the operation that was measured.
            missing = importlib.util.find_spec(name.partition(".")[0]) is None
            assert missing or _has(name), name
        for name in call.get("methods", ()):
            assert hasattr(torch.Tensor, name), name


def test_every_subject_has_a_rule_or_says_why_not():
    subjects = catalogue.table("subjects")["subject"]
    assert len(subjects) == len({row["name"] for row in subjects}) >= 100
    pages = catalogue.pages()
    for row in subjects:
        assert row["codes"] or len(row["rest"]) > 80, row["name"]
        for code in row["codes"]:
            assert "lint" in pages[code].found_by, (row["name"], code)


def test_every_rule_of_lint_belongs_to_a_subject():
    named = {code for row in catalogue.table("subjects")["subject"] for code in row["codes"]}
    linted = {page.code for page in catalogue.pages().values() if "lint" in page.found_by}
    # XLA0xx are about files and suppressions, not about programs.
    assert {code for code in linted - named if not code.startswith("XLA0")} == set()


OLD_CALLS = """
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.experimental.pjrt as pjrt
import torch_xla.experimental.xla_sharding as xs
import torch_xla.runtime as xr
from torch_xla.core.xla_model import xrt_world_size
from torch_xla.experimental.xla_sharding import Mesh
from torch_xla.experimental.xla_sharded_tensor import XLAShardedTensor

torch.set_deterministic(True)
assert torch.is_deterministic()
torch.set_deterministic(False)
assert (xm.xrt_world_size(), xm.xrt_world_size(1), xrt_world_size(defval=1)) == (1, 1, 1)
assert (xm.get_ordinal(), xm.get_ordinal(0), pjrt.global_ordinal()) == (0, 0, 0)
devices = {xm.xla_device(), xm.xla_device(0), xm.xla_device(n=0), xr.xla_device(), xr.xla_device(0)}
assert {str(device) for device in devices} == {"xla:0"}
tensor = torch.ones(2, device=xm.xla_device())
xm.mark_step()
xm.mark_step(wait=True)
xm.mark_step(reset_scope=False)
assert xr.using_pjrt() and pjrt.device_type() == "CPU" and pjrt.world_size() == 1
assert (pjrt.local_device_count(), pjrt.process_count(), pjrt.process_index()) == (1, 1, 0)
double = torch_xla.experimental.compile(lambda x: x * 2)
assert double(tensor).tolist() == [2.0, 2.0]
with torch_xla.experimental.compile():
    assert (tensor + 1).tolist() == [2.0, 2.0]
mesh, other = Mesh(np.arange(1), (1, 1), ("a", "b")), xs.Mesh(np.arange(1), (1,))
xr.use_spmd()
xs.mark_sharding(torch.ones(2, 2, device=xm.xla_device()), mesh, ("a", None))
assert XLAShardedTensor.__name__ == "XLAShardedTensor" and other.mesh_shape == (1,)
print("all of them")
"""


@pytest.mark.xla
def test_what_the_fixes_of_old_names_write_takes_the_old_arguments(tmp_path):
    pytest.importorskip("torch_xla")
    codes = engine.LintOptions(codes=frozenset({"XLA801", "XLA802"}))
    done = fixes.fix(OLD_CALLS.encode(), "use.py", lambda source: engine.lint(source, codes))
    assert done.result.findings == ()
    rows = {row["old"] for row in catalogue.table("api")["name"] if not row.get("no_fix")}
    assert [row for row in rows if row.rpartition(".")[2] not in OLD_CALLS] == []
    (tmp_path / "use.py").write_bytes(done.data)
    ran = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "use.py"],
        cwd=tmp_path, env={**os.environ, "PJRT_DEVICE": "CPU"}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout == "all of them\n"


def test_rows_of_the_framework_table_name_functions_that_the_frameworks_have():
    rows = catalogue.table("frameworks")["read"]
    assert len({(row["package"], row["function"]) for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"package", "function", "advice", "why"}, row
        folder = importlib.util.find_spec(row["package"])
        if folder is None:
            continue
        assert folder.origin is not None
        files = pathlib.Path(folder.origin).parent.rglob("*.py")
        text = f"def {row['function']}("
        assert any(text in file.read_text(encoding="utf-8") for file in files), row


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_all_names_of_the_installed_modules_are_known(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    pytest.importorskip("torch_xla")
    for row in catalogue.table("names")["module"]:
        try:
            module = importlib.import_module(row["name"])
        except ImportError:
            continue  # gone since, or it needs what is not installed
        public = {name for name in vars(module) if not name.startswith("_")}
        assert public - set(row["names"]) == set(), row["name"]
        private = {x for x in vars(module) if x.startswith("_") and not x.startswith("__")}
        assert private - set(row.get("private", ())) == set(), row["name"]
        for lost in catalogue.table("names")["lost"]:
            within, _, name = lost["name"].rpartition(".")
            assert within != row["name"] or name not in private, lost


@pytest.mark.xla
def test_all_modules_of_the_installed_framework_are_known():
    found = importlib.util.find_spec("torch_xla")
    if found is None or found.origin is None:
        pytest.skip("torch_xla is not installed")
    root = pathlib.Path(found.origin).parent
    names = catalogue.table("names")
    known = {row["name"] for row in names["module"]}
    for file in root.rglob("*.py"):
        parts = file.relative_to(root.parent).with_suffix("").parts
        dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not dotted.startswith(tuple(names["unlisted"])):
            assert dotted in known, dotted


def test_names_that_the_framework_table_calls_gone_are_gone():
    pytest.importorskip("lightning")
    rows = catalogue.table("frameworks")["gone"]
    names = [name for row in rows for name in row["names"]]
    assert len(set(names)) == len(names)
    for row in rows:
        assert set(row) == {"names", "instead"}, row
    assert not [name for name in names if _is_there(name)]


def test_modules_that_the_framework_table_calls_moved_are_gone_but_for_some():
    transformers = pytest.importorskip("transformers")
    for row in catalogue.table("frameworks")["moved"]:
        assert {*row, "begins", "ends"} == {"of", "begins", "ends", "kept", "instead"}, row
        assert row["of"] == transformers.__name__
        begins, ends = tuple(row.get("begins", ())), tuple(row.get("ends", ()))
        assert begins or ends
        for name in row["kept"]:
            assert name.startswith(begins) or name.endswith(ends), name
            assert _is_there(f"{row['of']}.{name}"), name
        there = {module.name for module in pkgutil.iter_modules(transformers.__path__)}
        there.update(dir(transformers))
        assert {x for x in there if x.startswith(begins) or x.endswith(ends)} <= set(row["kept"])


def test_the_modules_of_a_framework_are_all_known():
    transformers = pytest.importorskip("transformers")
    rows = catalogue.table("frameworks")["moved"]
    begins = tuple(x for row in rows for x in row.get("begins", ()))
    for row in catalogue.table("frameworks")["modules"]:
        assert set(row) == {"of", "names"}, row
        assert row["of"] == transformers.__name__
        assert row["names"] == sorted(set(row["names"]))
        there = {module.name for module in pkgutil.iter_modules(transformers.__path__)}
        assert {x for x in there if not x.startswith(begins)} <= set(row["names"])


def test_names_that_the_table_of_lightning_calls_gone_are_gone():
    pytest.importorskip("lightning")
    gone = catalogue.table("frameworks")["gone"]
    listed = {name for row in gone for name in row["names"]}
    for row in catalogue.table("lightning")["last"]:
        assert set(row) == {"release", "names"}, row
        for name in row["names"]:
            dotted = f"lightning.pytorch.{name}"
            assert not _is_there(dotted), name
            assert dotted not in listed, name
            listed.add(dotted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", ["transformers", "trl", "peft", "accelerate", "optimum.neuron"])
def test_names_that_the_table_of_hugging_face_calls_lost_are_lost(package):
    table = catalogue.table("huggingface")["lost"]
    named = [name for row in catalogue.table("frameworks")["gone"] for name in row["names"]]
    for row in (row for row in table if row["of"] == package):
        assert len(set(row) & {"now", "instead", "release"}) == 1, row
        assert row["names"] == sorted(set(row["names"])), row
        named += [f"{package}.{name}" for name in row["names"]]
    assert len(set(named)) == len(named)
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    for row in (row for row in table if row["of"] == package):
        assert not [name for name in row["names"] if _is_there(f"{package}.{name}")], row
        if "now" in row:
            last = {name.rpartition(".")[2] for name in row["names"]}
            assert all(_is_there(f"{row['now']}.{name}") for name in last), row


@pytest.mark.filterwarnings("ignore")
def test_models_that_the_table_calls_tied_tie_by_default():
    transformers = pytest.importorskip("transformers")
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for row in catalogue.table("tied")["family"]:
        assert set(row) - {"checkpoints"} == {"type", "classes", "told_by"}, row
        assert row["told_by"] in {"class", "config", "checkpoint"}, row
        ties = row["told_by"] != "checkpoint"
        for name in row["classes"]:
            cls = getattr(transformers, name)
            assert cls.config_class.model_type == row["type"], name
            assert cls._tied_weights_keys, name
            assert cls.config_class().tie_word_embeddings is ties, name
        # What an Auto class makes of a checkpoint of the family is one of its classes.
        mappings = ("MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
        for kind in mappings if "checkpoints" in row else ():
            made = getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").get(row["type"])
            assert made is None or made in row["classes"], (row, kind)


def test_names_of_checkpoints_that_tie():
    names = catalogue.table("tied")["family"]
    known = re.compile("|".join(row["checkpoints"] for row in names if "checkpoints" in row))
    for name in ("gpt2", "bert-base-uncased", "roberta-large", "t5-small", "esm2_t6_8M_UR50D"):
        assert known.fullmatch(name), name
    for name in (
        "flan-t5-base",
        "t5-v1_1-base",
        "mt5-small",
        "Llama-3.1-8B",
        "Qwen2.5-7B",
        "gpt2x",
    ):
        assert known.fullmatch(name) is None, name


TIED = """
import torch_xla
import transformers
from accelerate import Accelerator

small = dict(vocab_size=50, num_hidden_layers=1, num_attention_heads=2, hidden_size=16,
             intermediate_size=16)
configs = {
    "GPT2LMHeadModel": transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50),
    "BertForMaskedLM": transformers.BertConfig(**small),
    "EsmForMaskedLM": transformers.EsmConfig(**small, pad_token_id=0, mask_token_id=1),
    "BartForConditionalGeneration": transformers.BartConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2, vocab_size=50),
    "T5ForConditionalGeneration": transformers.T5Config(
        d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=50),
}

def tied(model):
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight

for name, config in configs.items():
    model = getattr(transformers, name)(config)
    told = [tied(model), tied(model.to(torch_xla.device()))]
    model.tie_weights()
    print(name, *told, tied(model))
    print("prepared", tied(Accelerator().prepare(getattr(transformers, name)(config))))
"""


@pytest.mark.xla
@pytest.mark.slow
def test_models_that_tie_come_apart_by_the_move_and_by_prepare():
    for package in ("torch_xla", "transformers", "accelerate"):
        pytest.importorskip(package)
    rows = [line.split() for line in _printed(TIED).splitlines()]
    listed = {name for row in catalogue.table("tied")["family"] for name in row["classes"]}
    seen = [row for row in rows if row and row[0] in listed]
    assert [row[1:] for row in seen] == [["True", "False", "True"]] * 5
    assert [row for row in rows if row[:1] == ["prepared"]] == [["prepared", "False"]] * 5


@pytest.mark.filterwarnings("ignore")
def test_models_that_the_table_says_read_their_mask_are_there():
    transformers = pytest.importorskip("transformers")
    table = catalogue.table("masks")
    kinds = [row["type"] for row in table["family"]]
    assert not set(kinds) & set(table["silent"])
    named = [name for row in table["family"] for name in row["classes"]]
    assert len(named) == len(set(named))
    for row in table["family"]:
        assert set(row) - {"second"} == {"type", "classes", "eager"}, row
        assert set(row.get("second", ())) <= set(row["classes"]), row
        for name in row["classes"]:
            cls = getattr(transformers, name)
            assert cls.config_class.model_type == row["type"], name
            parameters = [*inspect.signature(cls.forward).parameters]
            assert (parameters[2] == "attention_mask") is (name in row.get("second", ())), name


MASKS = """
import torch
import torch_xla
import torch_xla.debug.metrics as metrics
import transformers

small = dict(vocab_size=50, num_hidden_layers=1, num_attention_heads=2, hidden_size=16,
             intermediate_size=16)
configs = {
    "GPT2LMHeadModel": transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50),
    "LlamaForCausalLM": transformers.LlamaConfig(**small, num_key_value_heads=2),
    "BertModel": transformers.BertConfig(**small),
    "RobertaForSequenceClassification": transformers.RobertaConfig(**small),
    "T5ForConditionalGeneration": transformers.T5Config(
        d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=50,
        decoder_start_token_id=0),
    "BloomForCausalLM": transformers.BloomConfig(
        hidden_size=16, n_layer=1, n_head=2, vocab_size=50),
}
ids = torch.randint(3, 49, (2, 8))
mask = torch.ones(2, 8, dtype=torch.long)
mask[0, 5:] = 0
device = torch_xla.device()

def run(model, mask, **more):
    more |= {"labels": ids.to(device)} if "Conditional" in type(model).__name__ else {}
    given = None if mask is None else mask.to(device)
    torch_xla.sync(wait=True)
    metrics.clear_all()
    out = model(input_ids=ids.to(device), attention_mask=given, **more)
    reads = metrics.counter_value("aten::_local_scalar_dense") or 0
    out = out.logits if "logits" in out else out.last_hidden_state
    return reads, out.detach().cpu()

for name, config in configs.items():
    told = []
    for how in ("sdpa", "eager"):
        try:
            config._attn_implementation = how
            model = getattr(transformers, name)(config).to(device).eval()
        except ValueError:
            continue
        reads, plain = run(model, mask)
        if name == "BloomForCausalLM":
            told += [how, reads > 0]
            continue
        four = mask[:, None, None, :].bool()
        if how == "eager":  # which adds the mask to the scores
            four = torch.zeros(four.shape).masked_fill(~four, torch.finfo(torch.float32).min)
        whole, same = run(model, four)
        none, _ = run(model, None)
        told += [how, reads > 0, whole, none, torch.allclose(plain, same, atol=1e-5)]
    print(name, *told)
    if name == "LlamaForCausalLM":  # with eager attention
        print("packed", *(run(model, given, use_cache=False)[0] for given in (None, mask)))
"""


@pytest.mark.xla
@pytest.mark.slow
def test_models_read_the_masks_that_the_table_says():
    for package in ("torch_xla", "transformers"):
        pytest.importorskip(package)
    rows = {row[0]: row[1:] for row in map(str.split, _printed(MASKS).splitlines()) if row[1:]}
    # Without a mask and a cache they look for packed texts.
    assert rows.pop("packed") == ["1", "0"]
    families = catalogue.table("masks")["family"]
    eager = {name: row["eager"] for row in families for name in row["classes"]}
    for name, told in rows.items():
        if name == "BloomForCausalLM":
            assert "True" not in told, (name, told)
            continue
        assert told[1:4] == ["True", "0", "0"], (name, told)
        assert told[6:9] == [str(eager[name]), "0", "0"], (name, told)
        if not name.endswith(("ForCausalLM", "LMHeadModel")):
            assert {told[4], told[9]} == {"True"}, (name, told)
    assert len(rows) == 6


@pytest.mark.filterwarnings("ignore")
def test_models_that_the_table_says_have_a_window_have_one():
    transformers = pytest.importorskip("transformers")
    for row in catalogue.table("windows")["family"]:
        assert set(row) - {"checkpoints"} == {"type", "classes", "window"}, row
        config = getattr(transformers, f"{row['classes']}ForCausalLM").config_class
        assert config.model_type == row["type"], row
        made = config()
        assert (made.sliding_window, made.use_cache) == (row["window"], True), row


WINDOWED = """
import torch
import torch_xla
import transformers

ids = torch.randint(3, 49, (2, 8)).to(torch_xla.device())
for name in NAMES:
    cls = getattr(transformers, f"{name}ForCausalLM")
    small = dict(vocab_size=50, num_hidden_layers=2, num_attention_heads=2, hidden_size=16,
                 num_key_value_heads=2, intermediate_size=16, head_dim=8)
    known = cls.config_class()
    small = {key: value for key, value in small.items() if hasattr(known, key)}
    model = cls(cls.config_class(**small)).to(torch_xla.device())
    for cache in (True, False):
        try:
            model(input_ids=ids, use_cache=cache)
            print(name, cache, "ran")
        except RuntimeError as error:
            print(name, cache, "raised" if "Value out of range" in str(error) else error)
"""


@pytest.mark.xla
@pytest.mark.slow
def test_models_with_a_window_raise_for_a_shorter_text_unless_they_keep_no_cache():
    for package in ("torch_xla", "transformers"):
        pytest.importorskip(package)
    names = [row["classes"] for row in catalogue.table("windows")["family"]]
    printed = _printed(WINDOWED.replace("NAMES", repr(names)))
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in printed.splitlines()}
    for name in names:
        assert rows[name, "True"] == ["raised"], name
        assert rows[name, "False"] == ["ran"], name


def _last(dotted):
    return dotted.rpartition(".")[2]


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_the_parameters_of_the_installed_functions_are_known(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    pytest.importorskip("torch_xla")
    for row in catalogue.table("parameters")["function"]:
        module, _, name = row["of"].rpartition(".")
        function = getattr(importlib.import_module(module), name)
        taken = inspect.signature(function).parameters.values()
        others = [one.name for one in taken if one.kind is one.VAR_KEYWORD]
        assert len(others) == ("gives" in row), row["of"]
        named = {one.name for one in taken if one.kind is not one.POSITIONAL_ONLY} - {*others}
        named -= {x.name for x in taken if x.kind is x.VAR_POSITIONAL}
        if others:  # those that it does not give itself, by position
            given = inspect.signature(getattr(importlib.import_module(module), _last(row["gives"])))
            named |= set(given.parameters) - {"cpu_loader", "devices"}
        assert set(row["names"]) == named
        needed = [one for one in taken if one.default is one.empty and one.name not in others]
        starred = [one for one in taken if one.kind is one.VAR_POSITIONAL]
        assert row.get("needs", []) == [one.name for one in needed if one not in starred], row["of"]
        placed = [
            one for one in taken if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}
        ]
        assert row.get("any", False) == bool(starred), row["of"]
        if not starred:
            assert row.get("most", len(row["names"])) == len(placed), row["of"]


READS = """
import torch
import torch_xla
import torch_xla.debug.metrics as met

device = torch_xla.device()
for name in NAMES:
    for moved in (False, True):
        model = torch.nn.Linear(4, 4).to(device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=device)).sum().backward()
            torch_xla.sync(wait=True)
            before = met.counter_value("aten::_local_scalar_dense") or 0
            optimizer.step()
            torch_xla.sync(wait=True)
            reads = (met.counter_value("aten::_local_scalar_dense") or 0) - before
            for state in optimizer.state.values() if moved and step == 0 else ():
                for key, value in state.items():
                    if torch.is_tensor(value):
                        state[key] = value.to(device)
        print(name, moved, reads)
"""


@pytest.mark.xla
@pytest.mark.parametrize("kind", ["names", pytest.param("others", marks=pytest.mark.slow)])
def test_which_optimizers_read_a_count_on_the_device(kind):
    pytest.importorskip("torch_xla")
    names = catalogue.table("optimizers")["counting"][kind]
    reads = {
        tuple(line.split()[:2]): int(line.split()[2])
        for line in _printed(READS.replace("NAMES", repr(names))).splitlines()
    }
    for name in names:
        more = reads[name, "True"] > reads[name, "False"]
        assert more is (kind == "names"), (name, reads)


def test_arguments_that_the_framework_table_calls_gone_are_gone():
    pytest.importorskip("lightning")
    for row in catalogue.table("frameworks")["argument"]:
        assert set(row) == {"of", "names", "instead"}, row
        if importlib.util.find_spec(row["of"].partition(".")[0]) is None:
            continue  # TRL, which is not among what the tests need
        taken = inspect.signature(_there(row["of"])).parameters
        assert not taken.keys() & set(row["names"]), row


def test_attributes_that_the_framework_table_calls_gone_are_gone():
    pytest.importorskip("lightning")
    for row in catalogue.table("frameworks")["attribute"]:
        assert set(row) - {"shared"} == {"of", "names", "instead"}, row
        held = _there(row["of"])
        assert not [name for name in row["names"] if hasattr(held, name)], row
        assert not getattr(held, "__dataclass_fields__", {}).keys() & set(row["names"]), row


def test_names_that_the_framework_table_calls_distinct_are_gone():
    table = catalogue.table("frameworks")
    lost = {
        (row["of"], name)
        for kind in ("attribute", "argument")
        for row in table[kind]
        for name in row["names"]
    }
    listed = [(row["of"], name) for row in table["distinct"] for name in row["names"]]
    assert set(listed) <= lost
    assert len(set(listed)) == len(listed)


def test_arguments_that_are_refused_are_none_that_are_gone():
    table = catalogue.table("frameworks")
    gone = {(row["of"], name) for row in table["argument"] for name in row["names"]}
    for row in table["refused"]:
        assert set(row) - {"place", "values", "kept"} == {"of", "names", "raises", "instead"}, row
        for of in row["of"]:
            last = of.rpartition(".")[2]
            assert not [name for name in row["names"] if (f"optimum.{last}", name) in gone], row


def test_hooks_that_the_framework_table_calls_gone_are_gone():
    pytest.importorskip("lightning")
    table = catalogue.table("frameworks")
    homes = [_there(f"lightning.pytorch.{name}") for name in ("LightningModule", "Callback")]
    for row in table["hook"]:
        assert set(row) == {"names", "instead"}, row
        assert not [name for name in row["names"] for home in homes if hasattr(home, name)], row
    for row in table["parameter"]:
        assert set(row) == {"of", "names", "instead"}, row
        for hook in row["of"]:
            hooks = [getattr(home, hook) for home in homes if hasattr(home, hook)]
            taken = {name for one in hooks for name in inspect.signature(one).parameters}
            assert hooks, (hook, row)
            assert not taken & set(row["names"]), (hook, row)


def _there(dotted):
    """A class or method by its full name."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AssertionError(dotted)


def _is_there(dotted: str) -> bool:
    """Whether a module, or what a module or class holds, can be asked for."""
    parts = dotted.split(".")
    found = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            return False
    return True


def test_paths_of_the_table_of_writers_are_where_the_installed_packages_take_them():
    table = catalogue.table("writers")
    assert set(table) == {"function", "method", "opener", "once", "uploader"}
    names = [name for kind in table for row in table[kind] for name in row["names"]]
    assert len(names) == len(set(names))
    for row in (*table["function"], *table["opener"]):
        for dotted in row["names"]:
            module, _, name = dotted.rpartition(".")
            module = "omegaconf" if name == "save" and "OmegaConf" in module else module
            if importlib.util.find_spec(module.partition(".")[0]) is None or not _has(dotted):
                continue
            found = getattr(importlib.import_module(module), name, None)
            try:
                parameters = list(inspect.signature(found).parameters)
            except (TypeError, ValueError):
                continue
            place, keyword = row["path"]
            assert parameters[place] == keyword or keyword not in parameters, dotted


@pytest.mark.parametrize(
    "dotted",
    ["google.cloud.storage.Blob.upload_from_filename", "boto3.s3.inject.upload_file"],
)
def test_uploaders_take_their_file_where_the_table_of_writers_says(dotted):
    name = dotted.rpartition(".")[2]
    pytest.importorskip(dotted.partition(".")[0])
    (row,) = [row for row in catalogue.table("writers")["uploader"] if name in row["names"]]
    place, keyword = row["path"]
    taken = list(inspect.signature(_there(dotted)).parameters)
    assert taken[place + 1] == keyword  # behind ``self``


@pytest.mark.filterwarnings("ignore")
def test_methods_are_called_as_the_table_of_calls_says():
    pytest.importorskip("lightning")
    pytest.importorskip("transformers")
    rows = catalogue.table("called")["called"]
    seen = set()
    for row in rows:
        assert set(row) == {"of", "method", "call", "by", "since"}, row
        name, _, parameters = row["method"].partition("(")
        assert (row["of"], name) not in seen, row
        seen.add((row["of"], name))
        owner = _there(row["of"])
        assert all(hasattr(owner, one) for one in row["by"]), row
        method = getattr(owner, name.replace("*", "train_begin"))
        # The method takes what the row says, in this order, and what the framework gives.
        given = ast.parse(f"def name({parameters}: pass").body[0].args
        taken = inspect.signature(method).parameters
        places = [one.arg for one in given.args]
        assert list(taken)[: len(places)] == places, row
        call = ast.parse("name(" + row["call"].partition("(")[2], mode="eval").body
        named = {one.arg: None for one in call.keywords}
        inspect.signature(method).bind(None, *[None] * len(call.args), **named)
        if row["by"]:
            assert _calls_it(owner, name, len(call.args), set(named)), row


def _calls_it(owner, name, count, named):
    """Whether a class calls a method of itself with so many arguments, and at least these names."""
    tree = ast.parse(inspect.getsource(owner))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(
        keyword.arg == "sampler_fn" and getattr(keyword.value, "attr", None) == name
        for call in calls
        for keyword in call.keywords
    ):
        return True  # handed on as a function: ``sampler = sampler_fn(dataset)``
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == name
        and len(call.args) == count
        and named <= {keyword.arg for keyword in call.keywords}
        for call in calls
    )


def test_rows_of_the_table_of_readers_are_true_of_the_installed_packages():
    table = catalogue.table("readers")
    assert set(table) == {"counted", "checked", "scheduler"}
    for row in table["counted"]:
        module, _, name = row["class"].rpartition(".")
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            continue
        found = getattr(importlib.import_module(module), name)
        assert all(hasattr(found, method) for method in row["methods"])
        if "device" in row:
            place, keyword = row["device"]
            assert list(inspect.signature(found).parameters)[place] == keyword
    for row in table["checked"]:
        package = pytest.importorskip(row["package"].partition(" ")[0])
        argument, off = row["unless"]
        for name in row["classes"]:
            assert getattr(package, name)(**{argument: off}).nan_strategy == off


def test_the_table_has_each_scheduler_once():
    rows = catalogue.table("readers")["scheduler"]
    named = [name for row in rows for name in row["classes"]]
    assert len(named) == len(set(named))
    for row in rows:
        assert set(row) - {"noise", "step"} == {"classes", "package"}, row
        assert "noise" in row or "step" in row, row


SCHEDULERS = """
import diffusers
import torch
import torch_xla
import torch_xla.debug.metrics as metrics

device = torch_xla.device()
x, noise = torch.randn(2, 4, 3, 8, 8).to(device)

def reads(run):
    torch_xla.sync(wait=True)
    metrics.clear_all()
    run()
    return metrics.counter_value("aten::_local_scalar_dense") or 0

for name in NAMES:
    made = getattr(diffusers, name)()
    for method in METHODS[name]:
        times = made.timesteps[:4].to(device)
        print(name, method, reads(lambda: getattr(made, method)(x, noise, times)))
    for where in (device, None) if STEPS[name] else ():
        made = getattr(diffusers, name)()
        made.set_timesteps(4, device=where)
        told = [reads(lambda t=t: made.step(noise, t, x)) for t in made.timesteps[:3]]
        print(name, where and "device", told[-1])
"""


@pytest.mark.xla
@pytest.mark.slow
def test_schedulers_read_as_often_as_the_table_says():
    for package in ("torch_xla", "diffusers"):
        pytest.importorskip(package)
    rows = {
        name: row
        for row in catalogue.table("readers")["scheduler"]
        for name in row["classes"]
        if name not in {"FlowMapEulerDiscreteScheduler", "LTXEulerAncestralRFScheduler"}
    }
    text = SCHEDULERS.replace("NAMES", repr([*rows]))
    text = text.replace("METHODS", repr({name: row.get("noise", []) for name, row in rows.items()}))
    text = text.replace("STEPS", repr({name: row.get("step", 0) for name, row in rows.items()}))
    told = {tuple(line.split()[:2]): int(line.split()[2]) for line in _printed(text).splitlines()}
    for name, row in rows.items():
        for method in row.get("noise", ()):
            assert told[name, method] == 4, (name, method)
        if "step" in row:
            assert told[name, "device"] == row["step"], name
            assert told[name, "None"] == 0, name


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_averages_and_means_read_as_often_as_the_table_of_readers_says():
    pytest.importorskip("torch_xla")
    pytest.importorskip("torchmetrics")
    program = """
        import torch, torch_xla, torchmetrics
        from torch.optim.swa_utils import AveragedModel
        from torch_xla.debug import metrics
        device = torch_xla.device()
        net = torch.nn.Linear(4, 4).to(device)
        value = torch.ones((), device=device)
        placed = AveragedModel(net, device=device), AveragedModel(net).to(device)
        beside = AveragedModel(net)
        mean = torchmetrics.MeanMetric().to(device)
        quiet = torchmetrics.MeanMetric(nan_strategy="disable").to(device)
        calls = [lambda one=one: one.update_parameters(net) for one in (*placed, beside)]
        for call in (*calls, lambda: mean.update(value), lambda: quiet.update(value)):
            for _ in range(2):
                before = metrics.counter_value("aten::_local_scalar_dense") or 0
                with torch.no_grad():
                    for weights in net.parameters():
                        weights.mul_(0.9)  # as a step would
                call()
                torch_xla.sync()
            print((metrics.counter_value("aten::_local_scalar_dense") or 0) - before)
    """
    printed = _printed(program)
    assert printed.split() == ["2", "2", "0", "2", "0"]


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_metrics_of_several_classes_read_labels_and_not_scores():
    pytest.importorskip("torch_xla")
    pytest.importorskip("torchmetrics")
    program = """
        import torch, torch_xla, torchmetrics
        from torch_xla.debug import metrics
        device = torch_xla.device()
        scores, known = torch.rand(8, 5, device=device), torch.zeros(8, 5, device=device).long()
        several = torchmetrics.Accuracy(task="multiclass", num_classes=5).to(device)
        two = torchmetrics.Accuracy(task="binary").to(device)
        for metric, given, labels in (
            (several, scores, known[:, 0]),
            (several, scores.argmax(1), known[:, 0]),
            (two, scores[:, 0], known[:, 0]),
        ):
            metric.update(given, labels)
            torch_xla.sync()
            before = metrics.metric_data("TransferFromDeviceTime")
            metric.update(given, labels)
            after = metrics.metric_data("TransferFromDeviceTime")
            print(bool((after[0] if after else 0) - (before[0] if before else 0)))
    """
    printed = _printed(program)
    assert printed.split() == ["False", "True", "True"]


@pytest.mark.xla
def test_keys_of_today_are_those_that_the_functions_say():
    pytest.importorskip("torch_xla")
    for row in catalogue.table("api")["key"]:
        module, _, name = row["of"].rpartition(".")
        returned = typing.get_type_hints(getattr(importlib.import_module(module), name))["return"]
        assert set(row["new"]) <= set(returned.__annotations__)
        assert row["old"] not in returned.__annotations__


@pytest.mark.xla
def test_renamed_metrics_are_recorded_under_their_new_names(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    torch_xla = pytest.importorskip("torch_xla")
    import torch
    import torch_xla.debug.metrics as met

    torch.ones(2).to(torch_xla.device()).cpu()
    for row in catalogue.table("api")["metric"]:
        assert met.metric_data(row["old"]) is None
        assert met.metric_data(row["new"]) is not None
