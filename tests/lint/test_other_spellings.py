"""One program in several spellings that mean the same: the same is told of each."""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import codes, marked, rows

HEAD = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
from tqdm import tqdm
"""

LOOP = (
    HEAD
    + """
def train(net, loader, optimizer, criterion, limit):
    device = torch_xla.device()
    net.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = criterion(net(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
{last}
"""
)


def in_loop(lines):
    return LOOP.replace("{last}", textwrap.indent(textwrap.dedent(lines).strip("\n"), " " * 8))


@pytest.mark.parametrize(
    "lines",
    [
        "if step % 50 == 0:\n    print(loss.item())",
        "due = step % 50 == 0\nif due:\n    print(loss.item())",
        "due = not step % 50\nif due:\n    print(loss.item())",
        "due = step % 50 == 0\nif due and limit:\n    print(loss.item())",
        "loud = limit > 3\ndue = not step % 50\nif loud and due:\n    print(loss.item())",
        "if not step % 50 == 0:\n    continue\nprint(loss.item())",
        "if not step % 50 == 0:\n    pass\nelse:\n    print(loss.item())",
        "if step % 50 == 0:\n    pass\nelse:\n    continue\nprint(loss.item())",
    ],
)
def test_a_read_once_in_a_while(lines):
    assert set(codes(in_loop(lines))) & {"XLA101", "XLA113"} == {"XLA113"}


@pytest.mark.parametrize(
    "lines",
    [
        "if step % 50 != 0:\n    print(loss.item())",
        "rest = step % 50 != 0\nif rest:\n    print(loss.item())",
        "if not step % 50 != 0:\n    continue\nprint(loss.item())",
    ],
)
def test_a_read_in_nearly_all_steps(lines):
    assert set(codes(in_loop(lines))) & {"XLA101", "XLA113"} == {"XLA101"}


SAVES = (
    HEAD
    + """
def main(index, net, loader, verbose):
    net.to(torch_xla.device())
    {guard}

if __name__ == "__main__":
    xmp.spawn(main, args=(torch.nn.Linear(4, 4), [], False))
"""
)


@pytest.mark.parametrize(
    "guard",
    [
        "if xm.is_master_ordinal():\n        {}",
        "first = xm.is_master_ordinal()\n    if first:\n        {}",
        "rank = xm.get_ordinal()\n    first = rank == 0\n    if not not first:\n        {}",
        "others = not xm.is_master_ordinal()\n    if others:\n        return\n    {}",
        "if not xm.is_master_ordinal():\n        pass\n    else:\n        {}",
        "if xm.is_master_ordinal():\n        print(1)\n    else:\n        return\n    {}",
        "rank = xm.get_ordinal()\n    if rank:\n        return\n    {}",
        "rank = xm.get_ordinal()\n    if rank:\n        pass\n    else:\n        {}",
    ],
)
def test_what_the_master_alone_does(guard):
    def told(line):
        return codes(SAVES.replace("{guard}", guard.replace("{}", line)))

    assert "XLA405" in told('xm.rendezvous("saved")')
    assert not {"XLA401", "XLA402", "XLA405", "XLA406"} & {*told('print("saved")')}
    assert "XLA406" not in told('open("log.txt", "w").write("done")')


@pytest.mark.parametrize(
    "guard",
    [
        "if verbose:\n        {}",
        "loud = len(loader) > 4\n    if loud:\n        {}",
        "if verbose:\n        pass\n    else:\n        return\n    {}",
        "rank = xm.get_ordinal()\n    if rank < 0:\n        raise ValueError\n    {}",
        (
            "rank = xm.get_ordinal()\n    known = rank >= 0\n    if not known:\n"
            "        raise ValueError\n    {}"
        ),
    ],
)
def test_what_all_cores_do(guard):
    assert "XLA401" in codes(SAVES.replace("{guard}", guard.replace("{}", 'print("here")')))
    told = codes(SAVES.replace("{guard}", guard.replace("{}", 'xm.rendezvous("here")')))
    assert "XLA405" not in told


def test_a_condition_by_name_is_told_where_it_is_asked():
    program = """
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def main(index, net, test_loader):
            device = torch_xla.device()
            net.to(device)
            first = index == 0
            for epoch in range(10):
                if first:  # here
                    net.eval()
                    right = 0
                    for x, y in pl.MpDeviceLoader(test_loader, device):
                        right += net(x).argmax(1).eq(y).sum()
                    print(right.item())
                xm.rendezvous("epoch")

        torch_xla.launch(main, args=(None, []))
    """
    assert rows(program, "XLA418") == marked(program)


def test_a_condition_that_names_itself():
    assert "XLA101" in codes(in_loop("if (again := not again):\n    print(loss.item())"))
    turned = "again = not again\nif again:\n    print(loss.item())"
    assert {"XLA101", "XLA113"} & {*codes(in_loop(turned))}


SPAWNS = (
    HEAD
    + """
def main(index, data):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    {settings}
    for x in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(optimizer)

if __name__ == "__main__":
    {start}
"""
)
START = "xmp.spawn(main, args=(range(100),), nprocs=8)"
LOADER = "loader = DataLoader(data, batch_size=8, shuffle=True)"


def spawned(settings=LOADER, start=START):
    return codes(SPAWNS.replace("{settings}", settings).replace("{start}", start))


@pytest.mark.parametrize(
    "settings",
    [
        "loader = DataLoader(data, **dict(batch_size=8, shuffle=True))",
        'loader = DataLoader(data, **{"batch_size": 8, "shuffle": True})',
        "options = dict(batch_size=8, shuffle=True)\n    loader = DataLoader(data, **options)",
        (
            'options = {"batch_size": 8, "shuffle": True}\n    print(options["shuffle"])\n'
            "    loader = DataLoader(data, **options)"
        ),
    ],
)
def test_arguments_from_a_dictionary_in_sight(settings):
    given = set(spawned(settings)) - {"XLA401"}
    assert given == set(spawned())
    assert {"XLA402", "XLA203", "XLA404"} & given >= {"XLA402", "XLA404"}


@pytest.mark.parametrize(
    "settings",
    [
        'options["sampler"] = share(data)',
        "options.update(sampler=share(data))",
        "complete(options)",
        "if index:\n        options = dict(sampler=share(data))",
        'held = {"options": options}\n    complete(held)',
    ],
)
def test_a_dictionary_that_may_get_other_entries(settings):
    made = "options = dict(batch_size=8)\n    {}\n    loader = DataLoader(data, **options)"
    assert "XLA402" not in spawned(made.replace("{}", settings))


@pytest.mark.parametrize(
    "start",
    [
        'xmp.spawn(main, **{"args": (range(100),), "nprocs": 8})',
        "how = dict(args=(range(100),), nprocs=8)\n    xmp.spawn(main, **how)",
    ],
)
def test_arguments_of_the_start(start):
    assert "XLA404" in spawned(start=start)


@pytest.mark.parametrize(
    "trainer",
    [
        "Trainer(tpu_cores=8, progress_bar_refresh_rate=20, max_epochs=3)",
        "Trainer(**dict(tpu_cores=8, progress_bar_refresh_rate=20, max_epochs=3))",
        'Trainer(**{"tpu_cores": 8, "progress_bar_refresh_rate": 20, "max_epochs": 3})',
        (
            'settings = {"tpu_cores": 8, "progress_bar_refresh_rate": 20, "max_epochs": 3}\n'
            "trainer = Trainer(**settings)"
        ),
    ],
)
def test_removed_arguments_from_a_dictionary(trainer):
    program = f"from pytorch_lightning import Trainer\n\n{trainer}\n"
    assert len(rows(program, "XLA901")) == 2


@pytest.mark.parametrize(
    "made",
    [
        "begin = time.time()\n                seen = 0",
        "begin, seen = time.time(), 0",
        "[seen, begin] = [0, time.time()]",
        "(begin, seen), rest = (time.time(), 0), None",
    ],
)
def test_values_that_are_assigned_together(made):
    program = f"""
        import time
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def train(net, loader, criterion, optimizer):
            device = torch_xla.device()
            net.to(device)
            for x, y in pl.MpDeviceLoader(loader, device):
                {made}
                criterion(net(x), y).backward()
                xm.optimizer_step(optimizer)
                print(seen, time.time() - begin)  # here
    """
    assert rows(program, "XLA112") == marked(program)
    waits = program.replace("print(seen", "xm.wait_device_ops()\n                print(seen")
    assert "XLA112" not in codes(waits)


GROWS = (
    HEAD
    + """
def evaluate(net, loader):
    device = torch_xla.device()
    net.to(device).eval()
    {first}
    with torch.no_grad():
        for step, x in enumerate(pl.MpDeviceLoader(loader, device)):
            out = net(x)
            {lines}
    return kept
"""
)


@pytest.mark.parametrize(
    "lines",
    [
        "kept = out if kept is None else torch.cat([kept, out])",
        "kept: torch.Tensor = out if kept is None else torch.cat([kept, out])",
        (
            "if kept is None:\n                kept = out\n            else:\n"
            "                kept = torch.cat([kept, out])"
        ),
        (
            "if not kept is None:\n                kept = torch.cat([kept, out])\n"
            "            else:\n                kept = out"
        ),
        (
            "begins = kept is None\n            if begins:\n                kept = out\n"
            "            else:\n                kept = torch.cat([kept, out])"
        ),
    ],
)
def test_a_tensor_that_grows_from_none(lines):
    program = GROWS.replace("{first}", "kept = None").replace("{lines}", lines)
    assert "XLA206" in codes(program)


def test_a_list_that_is_made_anew_beside_another():
    program = """
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm

        def learn(env, net, optimizer):
            device = torch_xla.device()
            net.to(device)
            for rollout in range(1000):
                kept, gains = [], []
                for turn in range(20):
                    kept.append(net(env.observe().to(device)).mean())
                    gains.append(env.gain())
                torch.stack(kept).sum().backward()
                xm.optimizer_step(optimizer)
                torch_xla.sync()
    """
    assert "XLA206" not in codes(program)
    once = program.replace("kept, gains = [], []\n", "gains = []\n").replace(
        "net.to(device)\n", "net.to(device)\n            kept = []\n"
    )
    assert "XLA206" in codes(once)


@pytest.mark.parametrize(
    "over", ["enumerate(batches)", "tqdm(enumerate(batches))", "tqdm(range(100))", "turns"]
)
def test_a_counter_behind_a_progress_bar(over):
    target = "step" if "range" in over else "step, x"
    program = f"""
        import torch
        import torch_xla
        import torch_xla.distributed.parallel_loader as pl
        from tqdm import tqdm

        def evaluate(net, loader, x):
            device = torch_xla.device()
            net.to(device).eval()
            losses = torch.zeros(100, device=device)
            batches = pl.MpDeviceLoader(loader, device)
            turns = tqdm(enumerate(batches), total=100)
            with torch.no_grad():
                for {target} in {over}:
                    losses[step] = net(x).mean()
                    torch_xla.sync()
            return losses
    """
    assert "XLA205" in codes(program)


def by_name(program, *values):
    """A program whose values, as written, get a name in the line before."""
    lines = []
    for line in textwrap.dedent(program).splitlines():
        for number, value in enumerate(values):
            if value in line and "# " not in line.partition(value)[0]:
                indent = line[: len(line) - len(line.lstrip())]
                lines.append(f"{indent}given_{number} = {value}")
                line = line.replace(value, f"given_{number}")
        lines.append(line)
    return "\n".join(lines) + "\n"


PARAMETERS = """
    import torch
    import torch_xla

    def main(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.to(torch_xla.device())
        return optimizer
"""
SPECS = """
    import numpy as np
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    def shard(weight):
        xr.use_spmd()
        mesh = xs.Mesh(np.arange(8), (4, 2), ("data", "model"))
        xs.mark_sharding(weight, mesh, ("fsdp", None))
"""
SAMPLERS = """
    import torch_xla.runtime as xr
    from torch.utils.data import DistributedSampler

    def share(data):
        xr.use_spmd()
        return DistributedSampler(data, num_replicas=xr.world_size(), rank=xr.global_ordinal())
"""
COUNTS = """
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    def mean(right):
        count = torch.tensor(3)
        return xm.all_reduce("sum", count, scale=1.0 / xr.world_size())
"""


@pytest.mark.parametrize(
    ("code", "program", "values"),
    [
        ("XLA305", PARAMETERS, ["net.parameters()"]),
        ("XLA444", SPECS, ['("fsdp", None)', "(4, 2)", '("data", "model")']),
        ("XLA428", SAMPLERS, ["xr.world_size()", "xr.global_ordinal()"]),
        ("XLA438", COUNTS, ["1.0 / xr.world_size()"]),
        ("XLA206", GROWS, ["[kept, out]"]),
    ],
)
def test_values_that_get_a_name_first(code, program, values):
    grows = "kept = torch.cat([kept, out])"
    program = program.replace("{first}", "kept = torch.zeros(0, 4, device=device)")
    program = program.replace("{lines}", grows)
    assert by_name(program, *values) != textwrap.dedent(program)
    plain = rows(program, code)
    assert plain
    assert len(rows(by_name(program, *values), code)) == len(plain)


@pytest.mark.parametrize(
    "taken", ["list(net.parameters())", "[*net.parameters()]", "[p for p in net.parameters()]"]
)
def test_a_list_of_parameters_is_made_when_it_gets_its_name(taken):
    program = f"""
        import torch
        import torch_xla

        def main(net):
            taken = {taken}
            net.to(torch_xla.device())
            return torch.optim.SGD(taken, lr=0.1)
    """
    assert "XLA305" in codes(program)
    lazy = program.replace(taken, "net.parameters()")
    assert "XLA305" not in codes(lazy)


@pytest.mark.parametrize(
    "lines",
    [
        "accelerator = Accelerator(logging_dir=folder)  # here",
        (
            'options = {}\n    options["logging_dir"] = folder  # here\n'
            "    accelerator = Accelerator(**options)"
        ),
        (
            "options = dict()\n    options.update(logging_dir=folder)  # here\n"
            "    accelerator = Accelerator(log_with='all', **options)"
        ),
    ],
)
def test_removed_arguments_that_a_dictionary_gets_later(lines):
    program = f"""
import torch_xla
from accelerate import Accelerator

def main(folder):
    {lines}
    return accelerator
"""
    assert rows(program, "XLA906") == marked(program)
    assert rows(program.replace("logging_dir", "project_dir"), "XLA906") == []


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("model.eval()", True),
        ("model.train(False)", True),
        ("model.train(mode=False)", True),
        ("model.train(True)", False),
        ("prepare(model)", True),
        ("prepare(model)\n    model.train()", False),
        ("restore(model)", False),
    ],
)
def test_a_model_that_a_helper_makes_ready_for_evaluation(first, told):
    program = f"""
import torch_xla
import torch_xla.distributed.parallel_loader as pl

def prepare(model):
    model.eval()
    return 0

def restore(model):
    model.eval()
    model.train()

def score(model, loader):
    device = torch_xla.device()
    model.to(device)
    {first}
    right = 0
    for x, y in pl.MpDeviceLoader(loader, device):
        right += model(x).argmax(1).eq(y).sum()
    return right.item()
"""
    assert ("XLA320" in codes(program)) is told
    off = program.replace("def score", "@torch.no_grad()\ndef score").replace(
        "import torch_xla\n", "import torch\nimport torch_xla\n", 1
    )
    assert "XLA320" not in codes(off)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("torch.optim.Adam(taken, lr=0.1)", True),
        ("getattr(torch.optim, kind)(taken, lr=0.1)", True),
        ("getattr(torch.optim, kind)(net.parameters())", True),
        ("OPTIMIZERS[kind]([{'params': net.parameters()}], lr=0.1)", True),
        ("optimizer_cls(filter(train, net.parameters()))", True),
        ("getattr(helpers, kind)(taken)", False),
    ],
)
def test_an_optimizer_whose_class_a_setting_names(made, told):
    program = f"""
        import helpers
        import torch
        import torch_xla
        from choices import OPTIMIZERS, train

        def main(kind, optimizer_cls):
            net = torch.nn.Linear(8, 8)
            taken = list(net.parameters())
            optimizer = {made}
            net.to(torch_xla.device())
            return net, optimizer
    """
    assert ("XLA305" in codes(program)) is told
    early = program.replace("nn.Linear(8, 8)", "nn.Linear(8, 8).to(torch_xla.device())")
    assert "XLA305" not in codes(early)
