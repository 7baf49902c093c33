"""Loops, guards, entry points and step closures, in code as people write it."""

import pytest
from model_helpers import marked, model_of

from xladoctor.lint.model import LoopKind

HEAD = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""

TRAINING = """
def step_of(model, x, optimizer):
    loss = model(x).sum()
    loss.backward()
    helper(loss)  # <- in-step-function
    optimizer.step()

def helper(loss):
    report(loss)  # <- in-helper

def report(loss):
    print(loss)  # <- in-report

def validate(model, loader):
    model.eval()
    for x in loader:
        model(x)  # <- in-eval
    print("done")  # <- after-eval

def only_outside(loss):
    print(loss)  # <- outside

def train(model, loader, val_loader, optimizer):
    for epoch in range(3):
        print(epoch)  # <- in-epoch
        for step, x in enumerate(loader):
            step_of(model, x, optimizer)  # <- in-step
            for part in range(4):
                print(part)  # <- in-inner
            if step % 100 == 0:
                validate(model, val_loader)  # <- call-eval
        only_outside(epoch)
        [print(i) for i in range(3)]
    print("end")  # <- end
"""


def loops_of(body):
    return [(loop.kind, loop.implicit) for loop in model_of(HEAD + body).loops]


def test_what_loops_are_for():
    model = model_of(HEAD + TRAINING)
    kinds = [loop.kind for loop in model.loops if not loop.implicit]
    assert sorted(kind.value for kind in kinds) == sorted(
        ["evaluation loop", "epoch loop", "step loop", "loop", "loop"]
    )


@pytest.mark.parametrize(
    ("mark", "step", "evaluation"),
    [
        ("in-step", True, False),
        ("in-inner", True, False),
        ("in-step-function", True, False),
        ("in-helper", True, False),
        ("in-report", True, False),
        ("in-eval", False, True),
        ("after-eval", True, False),  # the call stands in the step loop, see throttled
        ("in-epoch", False, False),
        ("outside", False, False),
        ("end", False, False),
    ],
)
def test_what_runs_in_every_step(mark, step, evaluation):
    model = model_of(HEAD + TRAINING)
    node = marked(model, mark)
    assert (model.step_loop(node) is not None, model.eval_loop(node) is not None) == (
        step,
        evaluation,
    )


def test_what_is_called_every_so_often_is_throttled():
    model = model_of(HEAD + TRAINING)
    assert model.throttled(marked(model, "call-eval"))
    assert model.throttled(marked(model, "after-eval"))
    assert not model.throttled(marked(model, "in-report"))


@pytest.mark.parametrize(
    ("test", "throttled"),
    [
        ("if step % 50 == 0:", True),
        ("if (step + 1) % n == 0:", True),
        ("if not step % 50:", True),
        ("if step == 0:", True),
        ("if step == len(loader) - 1:", True),
        ("if verbose and step % 50 == 0:", True),
        ("if step % 50 == 0 or step == 3:", True),
        ("if step % 50 != 0:", False),
        ("if step % 50:", False),
        ("if verbose:", False),
        ("if step % 50 == 0 or verbose:", False),
        ("if step > 10:", False),
        ("if mode == 'train':", False),
    ],
)
def test_every_n_steps(test, throttled):
    model = model_of(
        HEAD
        + f"""
def train(loader, optimizer, verbose, n, mode):
    for step, x in enumerate(loader):
        optimizer.step()
        {test}
            print(x)  # <- here
"""
    )
    assert model.throttled(marked(model, "here")) is throttled


def test_continue_is_a_guard_too_and_failure_is_rare():
    model = model_of(
        HEAD
        + """
for step, x in enumerate(loader):
    optimizer.step()
    if x is None:
        print(x)  # <- leaving
        break
    log_now = step % 10 == 0
    if log_now:
        print(x)  # <- named
    if step % 50 != 0:
        continue
    print(x)  # <- rest
"""
    )
    assert all(model.throttled(marked(model, mark)) for mark in ("leaving", "named", "rest"))


def test_an_epoch_condition_does_not_make_its_steps_rare():
    model = model_of(
        HEAD
        + """
for epoch in range(9):
    if epoch % 2 == 0:
        for x in loader:
            optimizer.step()
            print(x)  # <- here
"""
    )
    assert model.step_loop(marked(model, "here")) is not None
    assert not model.throttled(marked(model, "here"))


@pytest.mark.parametrize(
    "body",
    [
        "for x in loader:\n    loss.backward()",
        "for x in loader:\n    xm.optimizer_step(opt)",
        "while True:\n    optimizer.step()",
        "for x in loader:\n    accelerator.backward(loss)",
        "for x in loader:\n    scaler.step(optimizer)",
    ],
)
def test_step_loops_are_known_by_what_they_do(body):
    assert loops_of(body + "\n") == [(LoopKind.STEP, False)]


@pytest.mark.parametrize(
    "body",
    [
        "for x in loader:\n    env.step(action)",
        "for x in loader:\n    scheduler.step()",
        "for line in open('x'):\n    print(line)",
    ],
)
def test_other_loops_are_no_step_loops(body):
    assert loops_of(body + "\n") == [(LoopKind.OTHER, False)]


def test_steps_of_lightning_are_steps():
    model = model_of(
        """
        import pytorch_lightning as pl
        class Lit(pl.LightningModule):
            def training_step(self, batch, batch_idx):
                print(batch)  # <- train
            def validation_step(self, batch, batch_idx):
                print(batch)  # <- val
            def on_train_epoch_end(self):
                print(1)  # <- epoch
        pl.Trainer(accelerator="tpu", devices=8)
        """
    )
    assert model.step_loop(marked(model, "train")).implicit
    assert model.eval_loop(marked(model, "val")).implicit
    assert model.hot_loop(marked(model, "epoch")) is None
    assert model.frameworks == {"lightning"}


@pytest.mark.parametrize(
    "condition",
    [
        "xm.is_master_ordinal()",
        "xr.global_ordinal() == 0",
        "xm.get_ordinal() == 0",
        "0 == xm.get_ordinal()",
        "not xm.get_ordinal()",
        "index == 0",
        "not index",
        "rank == 0",
        "master",
        "self.is_master",
        "verbose and xm.is_master_ordinal(local=False)",
        "accelerator.is_main_process",
        "trainer.is_global_zero",
    ],
)
def test_the_master_core_is_asked_for(condition):
    model = model_of(
        HEAD
        + f"""
class Run:
    def __init__(self):
        self.is_master = xm.is_master_ordinal()
    def go(self, index, verbose, accelerator, trainer):
        rank = xr.global_ordinal()
        master = rank == 0
        if {condition}:
            print(1)  # <- yes
        else:
            print(2)  # <- no
        print(3)  # <- both

def run(index):
    Run().go(index, True, None, None)

xmp.spawn(run)
"""
    )
    assert model.master_only(marked(model, "yes")) is not None
    assert model.master_only(marked(model, "no")) is None
    assert model.core_guard(marked(model, "no")) is not None
    assert model.core_guard(marked(model, "both")) is None


@pytest.mark.parametrize("condition", ["index == 3", "verbose", "epoch == 0", "step % 2 == 0"])
def test_other_conditions_are_not_for_the_master(condition):
    model = model_of(
        HEAD
        + f"""
def run(index, verbose=True):
    for epoch in range(3):
        for step in range(3):
            if {condition}:
                print(1)  # <- here

xmp.spawn(run)
"""
    )
    node = marked(model, "here")
    assert model.master_only(node) is None
    assert (model.core_guard(node) is not None) is (condition == "index == 3")


def test_a_return_of_the_others_leaves_the_master():
    model = model_of(
        HEAD
        + """
def save(model):
    if not xm.is_master_ordinal():
        return
    print(1)  # <- guarded

def log(text):
    print(text)  # <- through-caller

def run(index):
    save(1)
    if index == 0:
        log("a")

xmp.spawn(run)
"""
    )
    assert model.master_only(marked(model, "guarded")) is not None
    assert model.master_only(marked(model, "through-caller")) is not None


def test_a_core_local_loss_is_a_condition_that_differs():
    model = model_of(
        HEAD
        + """
def run(index):
    best = 9.0
    device = xm.xla_device()
    total = torch.zeros(1, device=device)
    for x in pl.MpDeviceLoader(object(), device):
        total += x.mean()
    loss = total.item()
    if loss < best:
        print(1)  # <- local
    loss = xm.mesh_reduce("loss", loss, max)
    if loss < best:
        print(2)  # <- reduced

xmp.spawn(run)
"""
    )
    assert model.core_guard(marked(model, "local")) is not None
    assert model.core_guard(marked(model, "reduced")) is None


@pytest.mark.parametrize(
    ("start", "everywhere"),
    [
        ("xmp.spawn(run, args=(1,))", True),
        ("xmp.spawn(lambda index: run(index))", True),
        ("import functools\nxmp.spawn(functools.partial(run, flag=1))", True),
        ("torch_xla.launch(run)", True),
        ("xmp.spawn(fn=run)", True),
        ("from accelerate import notebook_launcher\nnotebook_launcher(run, num_processes=8)", True),
        ("xmp.spawn(run, nprocs=1)", False),
        ("torch_xla.launch(run, debug_single_process=True)", False),
        ("run(0)", False),
    ],
)
def test_what_every_core_runs(start, everywhere):
    model = model_of(
        HEAD
        + f"""
def helper():
    print(1)  # <- helper

def run(index, flag=0):
    helper()
    print(2)  # <- run

print(3)  # <- module
{start}
"""
    )
    on_every_core = [
        model.on_every_core(marked(model, mark)) is not None for mark in ("helper", "run", "module")
    ]
    assert on_every_core == [everywhere, everywhere, False]
    assert model.multi_core is everywhere


def test_torchrun_runs_the_whole_program_on_every_core():
    model = model_of(
        HEAD
        + """
def main():
    torch.distributed.init_process_group("xla")
    print(1)  # <- here

main()
"""
    )
    assert model.on_every_core(marked(model, "here")) is not None


SPMD = "import os; os.environ['XLA_USE_SPMD'] = '1'"


@pytest.mark.parametrize("lines", ["xr.use_spmd()\nxmp.spawn(print)\n", f"{SPMD}\n"])
def test_spmd_is_one_program(lines):
    model = model_of(HEAD + lines)
    assert model.spmd
    assert not model.multi_core


def test_the_variable_of_spmd_is_a_mistake_where_cores_are_processes():
    model = model_of(HEAD + f"{SPMD}\ndef run(index):\n    print(index)\nxmp.spawn(run)\n")
    assert not model.spmd
    assert model.multi_core


@pytest.mark.parametrize("closure", ["report", "lambda l: report(l)"])
def test_step_closures_run_after_the_step(closure):
    model = model_of(
        HEAD
        + f"""
def report(loss):
    print(loss)  # <- helper

for x in loader:
    optimizer.step()
    xm.add_step_closure({closure}, args=(x,))
    print(x)  # <- step
"""
    )
    assert model.in_step_closure(marked(model, "helper"))
    assert model.step_loop(marked(model, "helper")) is None
    assert not model.in_step_closure(marked(model, "step"))
