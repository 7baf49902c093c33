"""Launched programs and engines: parameters by a name, short batches, cores that an option starts.

All programs are invented. ``# !XLA305`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

XM = """\
import itertools
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
#: How an optimizer gets its parameters.
TAKEN = {
    "as they come": """\
    params = net.parameters()
    adam = torch.optim.Adam(params){mark}
""",
    "as a list": """\
    params = list(net.parameters())
    adam = torch.optim.Adam(params){mark}
""",
    "chosen by filter": """\
    params = filter(lambda p: p.requires_grad, net.parameters())
    adam = torch.optim.Adam(params, lr=1e-3){mark}
""",
    "chosen in a generator": """\
    params = (p for p in net.parameters() if p.requires_grad)
    adam = torch.optim.Adam(params){mark}
""",
    "chained parts": """\
    params = itertools.chain(net.body.parameters(), net.head.parameters())
    adam = torch.optim.Adam(params){mark}
""",
    "a part of the model": """\
    adam = torch.optim.Adam(net.head.parameters()){mark}
""",
    "groups of a head and the rest": """\
    head = set(map(id, net.head.parameters()))
    rest = filter(lambda p: id(p) not in head, net.parameters())
    make = torch.optim.SGD
    adam = make([{{"params": rest}}, {{"params": net.head.parameters(), "lr": 0.1}}], lr=0.01){mark}
""",
    "list of a name": """\
    every = net.parameters()
    params = list(every)
    adam = torch.optim.Adam(params){mark}
""",
}
LOOP = """\
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        xm.optimizer_step(adam)
"""


@pytest.mark.parametrize("taken", TAKEN)
def test_parameters_that_are_taken_before_the_move(taken):
    program = f"""\
{XM}
def fit(net, batches):
    device = torch_xla.device()
{TAKEN[taken].format(mark="  # !XLA305")}\
    net.to(device)
{LOOP}"""
    assert rows(program, "XLA305") == [row for row, _ in marks(program)]


@pytest.mark.parametrize("taken", TAKEN)
def test_parameters_that_are_taken_after_the_move(taken):
    program = f"""\
{XM}
def fit(net, batches):
    device = torch_xla.device()
    net = net.to(device)
{TAKEN[taken].format(mark="")}\
{LOOP}"""
    assert rows(program, "XLA305") == []


@pytest.mark.parametrize(
    "params",
    [
        "net.parameters()",
        "filter(lambda p: p.requires_grad, net.parameters())",
        "itertools.chain(net.body.parameters(), net.head.parameters())",
        "(p for p in net.parameters() if p.requires_grad)",
    ],
)
def test_a_generator_asks_when_the_optimizer_goes_over_it(params):
    program = f"""\
{XM}
def fit(net, batches):
    device = torch_xla.device()
    params = {params}
    net.to(device)
    adam = torch.optim.Adam(params)
{LOOP}"""
    assert rows(program, "XLA305") == []


def test_a_list_has_asked_before_the_move():
    program = f"""\
{XM}
def fit(net, batches):
    device = torch_xla.device()
    params = sorted(net.parameters(), key=len)
    net.to(device)
    adam = torch.optim.Adam(params)  # !XLA305
{LOOP}"""
    assert rows(program, "XLA305") == [row for row, _ in marks(program)]


def test_a_save_that_moves_the_model_of_chosen_parameters():
    program = f"""\
{XM}
def keep(network, epoch):
    device = next(iter(network.parameters())).device
    torch.save(network.cpu().state_dict(), f"net-{{epoch}}.pt")  # !XLA305
    network.to(device)
def fit(net, batches, epochs):
    device = torch_xla.device()
    net = net.to(device)
{TAKEN["groups of a head and the rest"].format(mark="")}\
    for epoch in range(epochs):
        for x, y in pl.MpDeviceLoader(batches, device):
            adam.zero_grad()
            (net(x) - y).pow(2).mean().backward()
            xm.optimizer_step(adam)
        if xm.is_master_ordinal():
            keep(net, epoch)
"""
    assert rows(program, "XLA305") == [row for row, _ in marks(program)]


SHORT = f"""\
{XM}
from rows import Rows
def is_whole(x, wanted):
    return x.shape[0] == wanted
def fit(net, args):
    device = torch_xla.device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    batches = torch.utils.data.DataLoader(Rows(), batch_size=args.batch_size, shuffle=True)
    for x, y in pl.MpDeviceLoader(batches, device):
        if {{test}}:
            {{leave}}
        adam.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        xm.optimizer_step(adam)
"""


@pytest.mark.parametrize("leave", ["continue", "break"])
@pytest.mark.parametrize(
    "test",
    [
        "x.shape[0] != args.batch_size",
        "x.size(0) < args.batch_size",
        "len(x) != 64",
        "64 > len(y)",
        "not x.shape[0] == args.batch_size",
        "not is_whole(x, args.batch_size)",
        "x is None or len(x) < args.batch_size",
    ],
)
def test_short_batches_that_the_loop_leaves_out(test, leave):
    assert rows(SHORT.format(test=test, leave=leave), "XLA203") == []


@pytest.mark.parametrize(
    "test", ["x.shape[0] < 2", "len(x) == 1", "x is None", "is_whole(x, 64)", "y.dim() != 1"]
)
def test_short_batches_that_it_keeps(test):
    assert len(rows(SHORT.format(test=test, leave="continue"), "XLA203")) == 1


STARTED = """\
import sys
import torch
from tqdm import tqdm
from options import args
if args.cores > 0:
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl
    import torch_xla.distributed.xla_multiprocessing as xmp
on_cores = args.cores > 0
def fit(net, data):
    device = xm.xla_device() if on_cores else torch.device("cpu")
    net = net.to(device)
    adam = torch.optim.Adam(net.parameters())
    for epoch in range(args.epochs):
        if {test}:
            batches = pl.MpDeviceLoader(data, device)
        else:
            batches = tqdm(data){mark}
        for x, y in batches:
            adam.zero_grad()
            (net(x) - y).pow(2).mean().backward()
            xm.optimizer_step(adam, barrier=True)
        print(epoch)  # !XLA401
def run(index, data):
    torch.manual_seed(0)
    fit(torch.nn.Linear(4, 4), data)
if {start}:
    xmp.spawn(run, args=(range(8),))
else:
    fit(torch.nn.Linear(4, 4), range(8))
"""


@pytest.mark.parametrize(
    ("test", "start"),
    [
        ("on_cores and args.cores > 1", "on_cores and args.cores > 1"),
        ("args.cores > 1", "on_cores and args.cores > 1"),
        ("args.cores > 1", "args.cores > 1"),
        ("args.spawn", "args.spawn"),
        ("args.spawn or args.cores > 1", "args.spawn"),
    ],
)
def test_the_other_branch_of_what_starts_the_cores(test, start):
    program = STARTED.format(test=test, start=start, mark="")
    assert rows(program, "XLA401") == sorted(row for row, _ in marks(program))


@pytest.mark.parametrize(
    ("test", "start"),
    [
        ("args.quiet", "on_cores and args.cores > 1"),
        ("args.spawn and args.quiet", "args.spawn"),
        ("epoch == 0", "args.spawn"),
    ],
)
def test_another_condition_than_that_of_the_start(test, start):
    program = STARTED.format(test=test, start=start, mark="  # !XLA401")
    assert rows(program, "XLA401") == sorted(row for row, _ in marks(program))


TRIED = """\
import torch
try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    FOUND = True
except ImportError:
    FOUND = False
from transformers import AutoModelForCausalLM
def pick():
    return torch_xla.device() if FOUND else torch.device({other})
def build(name):
    net = AutoModelForCausalLM.from_pretrained(name)
    try:
        net.gradient_checkpointing_enable(){mark}
    except Exception as error:
        print(error)
    return net.to(pick())
"""


@pytest.mark.parametrize(
    "other", ['"cpu"', '"cuda"', '"cuda" if torch.cuda.is_available() else "cpu"']
)
def test_checkpoints_of_a_program_for_several_devices(other):
    program = TRIED.format(other=other, mark="  # !XLA312")
    assert rows(program, "XLA312") == [row for row, _ in marks(program)]
    only_asks = program.replace("    import torch_xla.core.xla_model as xm\n", "").replace(
        "    import torch_xla\n", "    from transformers.utils import is_torch_xla_available\n"
    )
    assert rows(only_asks, "XLA312") == []
    for guard in ("if not FOUND:", "if torch.cuda.is_available():"):
        guarded = program.replace("        net.grad", f"        {guard}\n            net.grad")
        assert rows(guarded, "XLA312") == []


@pytest.mark.parametrize(
    "name", ["ORDINAL", "LOCAL_ORDINAL", "MP_DEVICE", "WORKERS", "SERVICE_ADDRESS", "TPU_CONFIG"]
)
def test_variables_of_xrt_that_are_gone(name):
    program = f"""\
import os
import torch_xla.core.xla_env_vars as xenv
os.environ[xenv.WORLD_SIZE] = "8"
os.environ[xenv.PJRT_DEVICE] = "TPU"
os.environ[xenv.{name}] = "0"  # !XLA801
"""
    assert rows(program, "XLA801") == [row for row, _ in marks(program)]


WITHIN = f"""\
{XM}
import copy
from nets import Net
def loop(net, batches, device):
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        xm.optimizer_step(adam)
def start(batches):
    torch.manual_seed(0)
    net = {{made}}
    def run(index):
        device = torch_xla.device()
        {{moved}}{{mark}}
        loop(own, batches, device)
    xmp.spawn(run, start_method="fork")
"""


@pytest.mark.parametrize("made", ["xmp.MpModelWrapper(Net())", "torch.nn.Linear(4, 4)"])
def test_a_model_of_the_function_that_starts_the_cores(made):
    program = WITHIN.format(made=made, moved="own = net.to(device)", mark="  # !XLA424")
    assert rows(program, "XLA424") == [row for row, _ in marks(program)]


@pytest.mark.parametrize(
    ("made", "moved"),
    [
        ("torch.nn.Linear(4, 4)", "own = copy.deepcopy(net).to(device)"),
        ("torch.nn.Linear", "own = net(4, 4).to(device)"),
        ("torch.zeros(4)", "own = Net(net.to(device)).to(device)"),
    ],
)
def test_a_model_of_each_core_beside_it(made, moved):
    assert rows(WITHIN.format(made=made, moved=moved, mark=""), "XLA424") == []


UNREAD = f"""\
{XM}
from gan import Gan
def train(loader, gan):
    device = torch_xla.device()
    for images, labels in loader:
        images = images.to(device){{mark}}
        {{step}}
"""


@pytest.mark.parametrize(
    "step",
    [
        "gan.optimizeParameters(images)",
        "gan.set_input(images); gan.optimize_parameters()",
        "losses = gan.train_step(images)",
        "out = gan.training_step(images, labels)",
    ],
)
def test_steps_of_an_object_that_nobody_has_read(step):
    program = UNREAD.format(step=step, mark="  # !XLA603")
    assert rows(program, "XLA603") == [row for row, _ in marks(program)]
    assert rows(program, "XLA301") == []


@pytest.mark.parametrize("step", ["gan.show(images)", "gan.append(images)", "gan.step(images)"])
def test_what_may_be_no_step(step):
    assert rows(UNREAD.format(step=step, mark=""), "XLA603") == []


SHARED = f"""\
{XM}
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm
from rows import Rows
def run_epoch(train, net, loader, adam):
    right = 0
    bar = tqdm(loader, disable=True)
    with torch.set_grad_enabled(train):
        for x, y in {{over}}:
            loss = (net(x) - y).pow(2).mean()
            if train:
                adam.zero_grad()
                loss.backward()
                xm.optimizer_step(adam)
            right += loss.detach()
    return right
def main(index):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    of_core = dict(num_replicas=xr.world_size(), rank=xr.global_ordinal())
    train_set, test_set = Rows("train"), Rows("test")
    sampler = DistributedSampler(train_set, **of_core)
    loader = DataLoader(train_set, batch_size=64, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64{{sampler}}){{mark}}
    loader = pl.MpDeviceLoader(loader, device)
    test_loader = pl.MpDeviceLoader(test_loader, device)
    for epoch in range(9):
        sampler.set_epoch(epoch)
        run_epoch(True, net, loader, adam)
        run_epoch(False, net, test_loader, None)
if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.parametrize("over", ["loader", "tqdm(loader)", "bar"])
def test_an_evaluation_loader_of_a_function_for_both(over):
    program = SHARED.format(over=over, sampler="", mark="  # !XLA402")
    assert rows(program, "XLA402") == [row for row, _ in marks(program)]
    assert rows(program, "XLA203") == []


def test_an_evaluation_loader_with_a_sampler():
    sampler = ", sampler=DistributedSampler(test_set, shuffle=False, **of_core)"
    assert rows(SHARED.format(over="bar", sampler=sampler, mark=""), "XLA402") == []


BOTH = f"""\
{XM}
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler
from rows import Rows
def run_epoch(train, net, loader, adam):
    total, count = 0.0, 0
    with torch.set_grad_enabled(train):
        for x, y in loader:
            loss = (net(x) - y).pow(2).mean()
            if train:
                adam.zero_grad()
                loss.backward()
                xm.optimizer_step(adam)
            total += loss.detach()
            count += 1
    {{back}}
def main(index):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    of_core = dict(num_replicas=xr.world_size(), rank=xr.global_ordinal())
    train_set, val_set = Rows("train"), Rows("val")
    loader = DataLoader(train_set, 64, sampler=DistributedSampler(train_set, **of_core))
    val_loader = DataLoader(val_set, 64, sampler=DistributedSampler(val_set, **of_core))
    batches = pl.MpDeviceLoader(loader, device)
    val_batches = pl.MpDeviceLoader(val_loader, device)
    train_loss = run_epoch(True, net, batches, adam)
    {{evaluated}}
    xm.master_print(train_loss)
    xm.master_print(val_loss){{mark}}
if __name__ == "__main__":
    torch_xla.launch(main)
"""
RUN = "run_epoch(False, net, val_batches, None)"


@pytest.mark.parametrize(
    ("back", "evaluated"),
    [
        ("return total.item() / count", f"val_loss = {RUN}"),
        ("return total.item() / count, count", f"val_loss, seen = {RUN}"),
        ("return total / count", f"val_loss = {RUN}"),
    ],
)
def test_what_a_function_for_both_gave_of_an_evaluation(back, evaluated):
    program = BOTH.format(back=back, evaluated=evaluated, mark="  # !XLA427")
    assert rows(program, "XLA427") == [row for row, _ in marks(program)]


@pytest.mark.parametrize(
    ("back", "evaluated"),
    [
        ("return total.item() / count", f'val_loss = xm.mesh_reduce("val", {RUN}, max)'),
        ('return xm.mesh_reduce("loss", total.item() / count, max)', f"val_loss = {RUN}"),
        (
            "return total.item() / count",
            f'val_loss = {RUN}; val_loss = xm.mesh_reduce("val", val_loss, max)',
        ),
        ("return total.item() / count", "val_loss = 0.0"),
    ],
)
def test_what_was_reduced_over_the_cores(back, evaluated):
    assert rows(BOTH.format(back=back, evaluated=evaluated, mark=""), "XLA427") == []
