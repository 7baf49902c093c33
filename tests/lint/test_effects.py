"""The stream of effects: what the library knows, in which order things happen, who comes there."""

from __future__ import annotations

import fnmatch
import importlib
import inspect

import pytest
from model_helpers import model_of
from rule_helpers import codes, rows
from rule_helpers import marked as marked_rows

from xladoctor import catalogue
from xladoctor.cli.app import main
from xladoctor.errors import UsageError
from xladoctor.lint import engine, fixes, library
from xladoctor.lint.events import How
from xladoctor.lint.library import Effect, Returns
from xladoctor.lint.model import FileModel, Kind


@pytest.mark.xla
@pytest.mark.parametrize(
    "name",
    [name for name in library.builtin().names.values() if not name.is_pattern],
    ids=lambda name: name.dotted,
)
def test_every_name_of_the_library_is_in_the_installed_package(name):
    owner, _, last = name.dotted.rpartition(".")
    outer, _, cls = owner.rpartition(".")
    try:
        module = importlib.import_module(outer if cls[:1].isupper() else owner)
    except ImportError:
        pytest.skip(f"{owner} is not installed")
    holder = getattr(module, cls) if cls[:1].isupper() else module
    if name.optional and not hasattr(holder, last):
        pytest.skip(f"{name.dotted} is not in this release")
    found = getattr(holder, last)
    for argument in (name.only_if, name.core):
        if argument is not None:
            parameters = list(inspect.signature(found).parameters)
            assert parameters[argument[0]] == argument[1]


@pytest.mark.xla
@pytest.mark.parametrize(
    "name",
    [name for name in library.builtin().names.values() if name.is_pattern],
    ids=lambda name: name.dotted,
)
def test_every_pattern_of_the_library_matches_something(name):
    module, _, pattern = name.dotted.rpartition(".")
    try:
        found = vars(importlib.import_module(module))
    except ImportError:
        pytest.skip(f"{module} is not installed")
    if name.optional and not fnmatch.filter(found, pattern):
        pytest.skip(f"{name.dotted} is not in this release")
    assert fnmatch.filter(found, pattern)


@pytest.mark.parametrize(
    ("dotted", "returned"),
    [
        ("os.path.join", Returns.NUMBER),
        ("torch.nn.modules.linear.Linear", Returns.MODEL),
        ("torch.nn.CrossEntropyLoss", Returns.LOSS),
        ("torch.nn.functional.relu", None),
        ("torch.nn.utils.rnn.PackedSequence", Returns.UNKNOWN),
        ("torch.utils.data.distributed.DistributedSampler", Returns.SAMPLER),
        ("torch.optim.lr_scheduler.StepLR", Returns.SCHEDULER),
        ("torch.optim.AdamW", Returns.OPTIMIZER),
        ("torch_xla.runtime.world_size", Returns.FACT),
        ("acme.make_loader", None),
    ],
)
def test_what_a_call_gives_back_is_said_by_the_nearest_module(dotted, returned):
    assert library.builtin().returns(dotted) is returned


def test_a_project_says_what_its_own_functions_give_back():
    text = "from acme.data import make_loader\nbatches = make_loader()\n"
    row = '[[call]]\nmodule = "acme.data"\nnames = ["make_*"]\nreturns = "device loader"\n'
    kinds = []
    for known in (library.extended(row), library.builtin()):
        model = FileModel(text, library=known)
        [call] = model.calls("acme.data.make_loader")
        kinds.append(model.value(call.node).kind)
    assert kinds == [Kind.DEVICE_LOADER, Kind.UNKNOWN]


def test_every_row_says_how_it_is_known():
    assert all(name.known for name in library.builtin().names.values())


def test_a_name_has_one_row():
    rows = catalogue.table("library")["call"]
    names = [
        f"{module}.{name}"
        for row in rows
        for module in ([row["module"]] if isinstance(row["module"], str) else row["module"])
        for name in row["names"]
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"calls": []}, "only [[call]] rows are known, not calls"),
        ({"call": {}}, "only [[call]] rows are known"),
        ({"call": [{"names": ["f"]}]}, 'row 1: give module = "..."'),
        ({"call": [{"module": "m", "names": "f"}]}, "row 1: names is a list of names"),
        ({"call": [{"module": "m", "names": ["f"], "does": 1}]}, "row 1: unknown key does"),
        ({"call": [{"module": "m", "names": ["f"], "effects": ["x"]}]}, "row 1: effects is a list"),
        ({"call": [{"module": "m", "names": ["f"], "equal": "all"}]}, "row 1: equal is one of"),
        ({"call": [{"module": "m", "names": ["f"], "pending": 1}]}, "row 1: pending is true or"),
        ({"call": [{"module": "m", "names": ["f"], "only_if": ["x"]}]}, "row 1: only_if is a pos"),
        ({"call": [{"module": "m", "names": ["f"], "returns": "x"}]}, "row 1: returns is one of"),
        ({"call": [{"module": "m", "names": ["*"], "effects": []}]}, "row 1: names with * say"),
        ({"call": [{"module": [], "names": ["f"]}]}, "row 1: give module"),
    ],
)
def test_a_malformed_table_is_named_with_its_row(table, says):
    with pytest.raises(UsageError) as error:
        library.read(table, "names.toml")
    assert str(error.value).startswith("names.toml")
    assert says in str(error.value)


MASTER_ONLY = """
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.core.functions as xf

def main(index):
    x = torch.ones(3, device=xm.xla_device())
    if xm.is_master_ordinal():
        {call}  # here

torch_xla.launch(main)
"""


@pytest.mark.parametrize(
    "call",
    [
        "xm.all_reduce('sum', [x])",
        "xm.all_gather_bucketized([x])",
        "xm.reduce_scatter_bucketized('sum', [x], 1.0, 0, 8)",
        "xm.all_reduce_bucketized_gradients([x], 1.0, None, False)",
        "xm.do_on_ordinals(print)",
        "xf.all_reduce('sum', x)",
        "dist.gather(x)",
        "dist.reduce(x, 0)",
        "dist.scatter(x)",
        "dist.broadcast_object_list([1])",
        "dist.gather_object(1)",
        "dist.monitored_barrier()",
        "dist.all_to_all_single(x, x)",
        "dist.barrier()",
        "dist.new_group([0, 1])",
    ],
)
def test_each_collective_is_found_on_the_master_alone(call):
    program = MASTER_ONLY.format(call=call)
    assert rows(program, "XLA405") == marked_rows(program)


def test_a_method_is_known_by_the_class_of_its_object():
    program = """
    import torch_xla
    from accelerate import Accelerator

    accelerator = Accelerator()
    if accelerator.is_main_process:
        accelerator.wait_for_everyone()  # here
    other = object()
    if accelerator.is_main_process:
        other.wait_for_everyone()
    """
    assert rows(program, "XLA405") == marked_rows(program)


STEP = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

def log(x):
    print(x)

def train(loader, model, optimizer):
    loader = pl.MpDeviceLoader(loader, xm.xla_device())
    for step, x in enumerate(loader):
        {first}
        loss = model(x).sum()
        loss.backward()
        {second}
        if step % 50 == 0:
            print(loss.item())
        {third}
"""


@pytest.mark.parametrize(
    ("first", "second", "third", "found"),
    [
        # An end before the loss is computed is the end of the step before.
        ("xm.mark_step()", "optimizer.step()", "pass", True),
        ("torch_xla.sync()", "optimizer.step()", "torch_xla.sync()", True),
        ("pass", "xm.optimizer_step(optimizer)", "xm.mark_step()", True),
        ("pass", "xm.optimizer_step(optimizer, barrier=True)", "pass", False),
        ("pass", "xm.mark_step()", "pass", False),
        ("pass", "torch_xla.sync()", "pass", False),
    ],
)
def test_only_an_end_behind_the_value_ends_the_step_that_is_read(first, second, third, found):
    program = STEP.format(first=first, second=second, third=third)
    assert ("XLA113" in codes(program)) is found


def test_events_say_what_is_read_and_how():
    model = model_of(
        """
        import torch, wandb
        import torch_xla.core.xla_model as xm

        def train(loader, model, optimizer):
            device = xm.xla_device()
            kept = torch.zeros(100)
            for i, x in enumerate(loader):
                loss = model(x.to(device)).sum()
                a = loss.item()
                b = float(loss)
                wandb.log({"loss": loss})
                kept[i] = loss
                xm.optimizer_step(optimizer, barrier=True)
        """
    )
    events = model.effects.of(Effect.READ)
    assert [event.how for event in events] == [How.METHOD, How.CAST, How.LIBRARY, How.STORE]
    steps = model.effects.of(Effect.OPTIMIZER_STEP, Effect.GRAPH_END, Effect.COLLECTIVE)
    assert {event.effect for event in steps} == {
        Effect.OPTIMIZER_STEP, Effect.GRAPH_END, Effect.COLLECTIVE,
    }  # fmt: skip
    assert len({event.node for event in steps}) == 1


WEIGHTS = """
import numpy as np
import torch, yaml
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import helpers
from timm.utils import random_seed
from transformers import set_seed

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
    def forward(self, x):
        return self.fc(x)

def seed_all(n):
    np.random.seed(n)
    torch.manual_seed(n)

def main(rank, args):
    {before}
    model = Net().to(torch_xla.device())
    {after}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in args.loader:
        model(x.to(torch_xla.device())).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
        helpers.save_checkpoint(model, "a")
    data = np.load("x.npy"), yaml.safe_load("y"), torch.load("z")

torch_xla.launch(main, args=(1,))
"""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("pass", "pass", True),
        ("np.random.seed(3)", "pass", True),
        ("seed_all(3)", "pass", False),
        ("seed_all(3 + rank)", "pass", True),
        ("set_seed(3)", "pass", False),
        ("set_seed(3 + rank)", "pass", True),
        ("random_seed(3, rank)", "pass", True),
        ("random_seed(3)", "pass", False),
        ("helpers.set_seed(3)", "pass", False),
        ("torch.manual_seed(3); torch.manual_seed(3 + rank)", "pass", True),
        ("torch.manual_seed(3)", "torch.manual_seed(3 + rank)", False),
        ("pass", "torch.manual_seed(3)", True),
        ("pass", "xm.broadcast_master_param(model)", False),
        ("pass", 'model.load_state_dict(torch.load("x"))', False),
        ("pass", 'if args.resume: model.load_state_dict(torch.load("x"))', True),
        ("pass", "helpers.load_checkpoint(model)", False),
        ("pass", "if args.resume: helpers.load_checkpoint(model)", True),
        ("pass", "for p in model.parameters(): xm.all_reduce('sum', [p.data])", False),
    ],
)
def test_weights_are_equal_by_what_is_called_not_by_words(before, after, found):
    assert ("XLA426" in codes(WEIGHTS.format(before=before, after=after))) is found


OWN = """
[[call]]
module = "mycompany.sync"
names = ["wait_all"]
effects = ["collective"]
empty = true
known = "mycompany/sync.py"
"""
OWN_PROGRAM = """
import torch_xla
import torch_xla.core.xla_model as xm
from mycompany.sync import wait_all

def main(index):
    if xm.is_master_ordinal():
        wait_all()

torch_xla.launch(main)
"""


@pytest.fixture
def lint(tmp_path, capfd, monkeypatch):
    """The exit code, output and errors of linting the folder."""
    monkeypatch.chdir(tmp_path)

    def run():
        code = main(["lint", "--output-format", "concise", "."])
        return (code, *capfd.readouterr())

    return run


def test_a_project_adds_its_own_names(tmp_path, lint):
    (tmp_path / "train.py").write_text(OWN_PROGRAM)
    settings = tmp_path / "pyproject.toml"
    settings.write_text("[tool.xladoctor.lint]\n")
    assert "XLA405" not in lint()[1]
    settings.write_text('[tool.xladoctor.lint]\nlibrary = "names.toml"\n')
    (tmp_path / "names.toml").write_text(OWN)
    # The settings changed, so what the cache has from before no longer holds.
    assert "XLA405" in lint()[1]
    (tmp_path / "names.toml").write_text(OWN.replace('"collective"', '"graph end"'))
    assert "XLA405" not in lint()[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        ("[[call", "is not TOML"),
        ("[[call]]\nmodule = 3\n", 'names.toml, row 1: give module = "..."'),
    ],
)
def test_a_library_that_cannot_be_used_is_one_sentence(tmp_path, lint, text, says):
    (tmp_path / "train.py").write_text(OWN_PROGRAM)
    (tmp_path / "pyproject.toml").write_text('[tool.xladoctor.lint]\nlibrary = "names.toml"\n')
    if text is not None:
        (tmp_path / "names.toml").write_text(text)
    code, _, error = lint()
    assert code == 2
    assert says in error
    assert len(error.splitlines()) == 1


CLIP = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch.utils.data.distributed import DistributedSampler

def train(model, dataset, criterion, loader):
    {before}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        xm.optimizer_step(optimizer, barrier=True)
"""


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("pass", False),
        ("sampler = DistributedSampler(dataset, xr.world_size(), xr.global_ordinal())", True),
        ("xm.rendezvous('start')", True),
    ],
)
def test_a_barrier_does_not_prove_that_there_is_one_core(before, found):
    assert ("XLA303" in codes(CLIP.format(before=before))) is found


BY_HAND = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from vision.utils.gradients import clip_gradients
from vision.utils.common import is_xla

class Trainer:
    def __init__(self, model, optimizer, config):
        self.model, self.optimizer, self.config = model, optimizer, config
        self.model.to(torch_xla.device())

    def finish(self, loss):
        loss.backward()
        {clip}
        {reduce}
        self.optimizer.step()
        self.optimizer.zero_grad()
"""
PLAIN = "torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)"
HELPER = "clip_gradients(self.model, self.optimizer, self.config)"
ASKED = "if self.config.max_norm: torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)"
REDUCED = "xm.reduce_gradients(self.optimizer)"


@pytest.mark.parametrize(
    ("clip", "reduce", "told"),
    [
        (PLAIN, REDUCED, 1),
        (HELPER, REDUCED, 1),
        (ASKED, f"if is_xla(): {REDUCED}", 1),
        (REDUCED, PLAIN, 0),
        (REDUCED, HELPER, 0),
        (HELPER, "xm.optimizer_step(self.optimizer)", 0),
        (PLAIN.replace("norm_", "value_"), REDUCED, 0),
        (PLAIN, "pass", 0),
    ],
)
def test_gradients_that_are_reduced_by_hand_behind_a_clip(clip, reduce, told):
    assert codes(BY_HAND.format(clip=clip, reduce=reduce)).count("XLA303") == told


ACCUMULATED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

def _mp_fn(index, model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, images in enumerate(pl.MpDeviceLoader(batches, torch_xla.device())):
        model(images).sum().backward()
        if (step + 1) % 2 == 0:
            {reduced}
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            {step}
            optimizer.zero_grad()

torch_xla.launch(_mp_fn, args=(None, None))
"""


@pytest.mark.parametrize(
    ("reduced", "step"),
    [
        ("pass", "xm.optimizer_step(optimizer)"),
        ("xm.reduce_gradients(optimizer)", "optimizer.step()"),
    ],
)
def test_accumulated_gradients_are_given_what_was_reduced(reduced, step):
    text = ACCUMULATED.format(reduced=reduced, step=step)
    assert codes(text).count("XLA303") == 1
    done = fixes.fix(text.encode(), "train.py", engine.lint, unsafe=True)
    fixed = done.data.decode()
    assert "XLA303" not in codes(fixed)
    assert "reduce_gradients" not in fixed
    given = fixed.index("p.grad = xm.all_reduce(xm.REDUCE_SUM, p.grad, scale=1.0 / xr.world_size")
    assert given < fixed.index("clip_grad_norm_") < fixed.index("optimizer.step()")
    # All of it waits for the batches that are added up.
    assert f"{12 * ' '}for group in optimizer.param_groups:\n{16 * ' '}for p in group[" in fixed


def test_a_clip_belongs_to_the_step_of_its_own_loop():
    text = ACCUMULATED.format(reduced="pass", step="optimizer.step()").replace(
        "torch_xla.launch",
        "    for images in pl.MpDeviceLoader(batches, torch_xla.device()):\n"
        "        model(images).sum().backward()\n"
        "        xm.optimizer_step(optimizer)\n\ntorch_xla.launch",
        1,
    )
    assert "XLA303" not in codes(text)
