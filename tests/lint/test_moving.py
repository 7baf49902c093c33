"""Programs that are moved to TorchTPU: what is written for them, and what is left."""

import textwrap

import pytest

from xladoctor import catalogue
from xladoctor.lint import engine, fixes

MOVED = """
    import time

    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr


    def train(model, loader, log):
        device = xm.xla_device()
        torch_xla.manual_seed(3)
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * xr.world_size())
        start = time.perf_counter()
        for x in loader:
            loss = model(x.to(device)).sum()
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            optimizer.zero_grad()
            xm.add_step_closure(log, args=(loss.detach(), "loss"))
            xm.mark_step()
        torch_xla.sync(wait=True)
        if xm.is_master_ordinal() and xr.global_ordinal() % 2:
            print(time.perf_counter() - start)
        xm.rendezvous("done")
"""
WRITTEN = """
    import time

    import torch


    def train(model, loader, log):
        device = torch.device("tpu")
        torch.manual_seed(3)
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * torch.distributed.get_world_size())
        start = time.perf_counter()
        for x in loader:
            loss = model(x.to(device)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log(loss.detach(), "loss")
        torch.accelerator.synchronize()
        if torch.distributed.get_rank() == 0 and torch.distributed.get_rank() % 2:
            print(time.perf_counter() - start)
        torch.distributed.barrier()
"""


def fixed(text, *, unsafe=True, device="torch_tpu"):
    family = frozenset(code for code in catalogue.pages() if code.startswith("XLA85"))
    chosen = engine.LintOptions(codes=family, device=device)
    done = fixes.fix(
        textwrap.dedent(text).encode(), "train.py", lambda s: engine.lint(s, chosen), unsafe=unsafe
    )
    assert done.stable
    assert done.result.failures == ()
    return done


def test_what_means_the_same_is_written_and_unused_imports_go():
    done = fixed(MOVED)
    assert done.data.decode() == textwrap.dedent(WRITTEN)
    assert done.result.findings == ()


def test_without_the_target_nothing_is_written():
    assert fixed(MOVED, device="").data.decode() == textwrap.dedent(MOVED)


def test_safe_fixes_alone_leave_what_takes_a_process_group():
    text = fixed(MOVED, unsafe=False).data.decode()
    assert 'torch.device("tpu")' in text
    assert "torch.manual_seed(3)" in text
    assert "mark_step" not in text
    for kept in ("xr.world_size()", "xm.is_master_ordinal()", "xm.rendezvous", "xm.optimizer_step"):
        assert kept in text


def test_ranks_are_safe_where_the_program_has_a_process_group():
    joined = MOVED.replace(
        "        device = xm",
        '        torch.distributed.init_process_group("gloo")\n        device = xm',
    )
    text = fixed(joined, unsafe=False).data.decode()
    assert "0.1 * torch.distributed.get_world_size()" in text
    # The master of each host, unless it is told otherwise: not the same.
    assert "xm.is_master_ordinal()" in text


@pytest.mark.parametrize(
    "line",
    [
        "device = xm.xla_device(n=1)",
        "step = xm.optimizer_step(optimizer)",
        "xm.optimizer_step(optimizer, optimizer_args={'closure': f})",
        "found = xm.rendezvous('a', payload=b'x')",
        "xm.add_step_closure(log, args=(x,), run_async=True)",
        "xm.add_step_closure(log, args=values)",
        "xm.mark_step(reset_scope=False)",
        "f = torch_xla.compile(step, full_graph=True)",
        "torch_xla.manual_seed(3, device)",
        "y = xm.all_reduce(xm.REDUCE_SUM, x)",
        "for x in pl.MpDeviceLoader(loader, device): pass",
    ],
)
def test_what_takes_more_than_a_name_is_left_to_its_owner(line):
    head = (
        "import torch_xla\nimport torch_xla.core.xla_model as xm\n"
        "import torch_xla.distributed.parallel_loader as pl\n"
    )
    done = fixed(f"{head}{line}\n")
    assert line in done.data.decode()
    assert any(item.suggestion for item in done.result.findings)


def test_strings_that_name_the_device_are_moved():
    text = 'import torch\nx = torch.ones(2).to("xla:1")\nwith torch.autocast("xla"):\n    x * 2\n'
    text = f"import torch_xla\n{text}"
    assert fixed(text).data.decode() == text.replace("xla:1", "tpu:1").replace(
        '"xla"', '"tpu"'
    ).removeprefix("import torch_xla\n")


def test_the_fixes_are_made_of_bytes_as_they_stand():
    data = b"import torch_xla\r\nd = torch_xla.device()\r\n"
    codes = frozenset({"XLA851"})
    options = engine.LintOptions(codes=codes, device="torch_tpu")
    done = fixes.fix(data, "train.py", lambda s: engine.lint(s, options), unsafe=True)
    assert b'torch.device("tpu")\r\n' in done.data
    assert done.data.count(b"import torch\r\n") == 1
