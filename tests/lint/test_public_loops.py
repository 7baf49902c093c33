"""The step loop as public programs write it: what is on the device, what runs once in a while."""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import codes, marked, rows

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from tqdm import tqdm

device = xm.xla_device()
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([], batch_size=4, drop_last=True)
"""


def program(text):
    return HEAD + textwrap.dedent(text)


def test_a_loop_that_is_given_the_number_with_the_batch_counts_on_the_host():
    text = program(
        """
        for step, (x, y) in tqdm(pl.MpDeviceLoader(loader, device)):
            loss = (model(x) - y).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            if step % 50 == 0:
                print("step", step)
            total = y.sum().item()  # here
        """
    )
    assert rows(text, "XLA101") == marked(text)
    assert not {"XLA103", "XLA104", "XLA113"} & set(codes(text))


def test_names_of_data_are_parts_of_the_batch():
    text = program(
        """
        for batch, labels in pl.MpDeviceLoader(loader, device):
            loss = (model(batch) - labels).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            print(batch.mean().item())  # here
        """
    )
    assert rows(text, "XLA101") == marked(text)


#: A loop that reads its loss under a condition.
READ_IF = """
    def train(cores, every):
        for i, x in enumerate(pl.MpDeviceLoader(loader, device)):
            loss = model(x).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            if {}:
                print(int(loss))
"""


@pytest.mark.parametrize(
    "due",
    [
        "(i * 16) % 5000 > ((i + 1) * 16) % 5000 or i + 1 == len(loader)",
        "(i * cores) % every < cores",
        "cores > (i * cores) % every",
    ],
)
def test_a_count_that_comes_round_is_once_in_a_while(due):
    text = program(READ_IF.format(due))
    assert "XLA102" not in codes(text)


@pytest.mark.parametrize(
    "often", ["i % 10 < 5", "i % every < cores", "cores < (i * cores) % every"]
)
def test_a_remainder_that_is_small_for_long_is_not(often):
    text = program(READ_IF.format(often))
    assert "XLA102" in codes(text)


@pytest.mark.parametrize(
    "body",
    [
        # what makes the loss is in another package
        """
                loss = diffusion.losses(net, x)["loss"].mean()
                running += loss.item()  # here
                loss.backward()
                xm.optimizer_step(opt)
        """,
        # terms of the loss, weighed
        """
                pixel_loss, kl_loss = objectives(net, x)
                loss = pixel_loss + weight * kl_loss
                loss.backward()
                xm.optimizer_step(opt)
                print(kl_loss.item())  # here
        """,
        # scaled, and by hands of a framework
        """
                loss = objectives(net, x)
                scaler.scale(loss).backward()
                xm.optimizer_step(opt)
                running += float(loss)  # here
        """,
        """
                loss = objectives(net, x)
                fabric.backward(loss)
                opt.step()
                xm.mark_step()
                running += loss.detach().cpu().numpy()  # here
        """,
        # shown by its name
        """
                loss = objectives(net, x)
                loss.backward()
                xm.optimizer_step(opt)
                for name, value in {"loss": loss, "all": loss}.items():
                    writer.add_scalar(name, value.item())  # here
        """,
    ],
)
def test_what_is_differentiated_in_a_step_on_the_device_is_there(body):
    text = f"""\
import torch_xla.core.xla_model as xm
from project import diffusion, objectives, writer, scaler, fabric

def train(net, opt, batches, weight, running=0.0):
    for x in batches:
{textwrap.indent(textwrap.dedent(body), " " * 8)}
"""
    found = rows(text, "XLA101") + rows(text, "XLA102")
    assert found == marked(text)


def test_a_loss_of_a_loop_for_other_devices_says_nothing():
    text = """\
import torch_xla.core.xla_model as xm
from project import objectives

def train_gpu(net, opt, batches):
    for x in batches:
        loss = objectives(net, x)
        loss.backward()
        opt.step()
        print(loss.item())

def train_tpu(net, opt, batches):
    for x in batches:
        loss = objectives(net, x)
        loss.backward()
        xm.optimizer_step(opt)
        print(loss_weight.item())
"""
    assert not {"XLA101", "XLA103"} & set(codes(text))


def test_what_is_reduced_over_the_cores_is_a_tensor():
    text = """\
import torch_xla.core.xla_model as xm
from project import objectives

def train(net, opt, batches):
    for x in batches:
        logged = objectives(net, x, opt)
        xm.optimizer_step(opt)
        mean = xm.all_reduce(xm.REDUCE_SUM, logged).item()  # here
        print(mean)
"""
    assert rows(text, "XLA101") == marked(text)


def test_a_helper_is_judged_by_the_call_that_stands_below_it():
    text = """\
import torch
import torch_xla.core.xla_model as xm

def epoch(loader, net, opt, device):
    for batch in loader:
        x = batch["x"].to(device)  # here
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(opt, barrier=True)

def fold(data, net, opt):
    device = xm.xla_device()
    loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
    for _ in range(3):
        epoch(loader, net, opt, device)
"""
    assert rows(text, "XLA603") == marked(text)


def test_what_is_asked_for_parameters_is_a_model_whatever_made_it():
    text = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from project import resnet, data

def train(config):
    device = xm.xla_device()
    net = resnet(config).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(data, device):
        hits = (net(x).argmax(1) == y).sum()
        if net.training_phase > 3:
            hits = hits * 2
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(opt)
        print(hits.item())  # here
"""
    assert rows(text, "XLA101") == marked(text)
    assert "XLA104" not in codes(text)


ACCUMULATING = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

device = xm.xla_device()
net = torch.nn.Linear(4, 4).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def several(x, y):
    for part in range(4):
        loss = (net(x) - y).sum()
        loss.backward()
        xm.optimizer_step(opt)
"""


def test_steps_on_one_batch_may_be_ended_by_the_loop_that_hands_it_over():
    assert "XLA301" not in codes(ACCUMULATING)
    loader = "pl.MpDeviceLoader(data, device)"
    handed = ACCUMULATING + f"\nfor x, y in {loader}:\n    several(x, y)\n"
    assert "XLA301" not in codes(handed)
    never = ACCUMULATING + "\nfor _ in range(10):\n    several(torch.ones(4), torch.ones(4))\n"
    assert "XLA301" in codes(never)


def test_meeting_in_every_step_is_told_in_a_while_loop_too():
    text = program(
        """
        done = 0
        while done < 1000:
            for x in pl.MpDeviceLoader(loader, device):
                done += 1
                xm.rendezvous("batch")  # here
                loss = model(x).sum()
                loss.backward()
                xm.optimizer_step(optimizer)
                if done % 100 == 0:
                    xm.rendezvous("logged")
        """
    )
    assert rows(text, "XLA423") == marked(text)


ELSEWHERE = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from project import accuracy, focal_loss, device_batches, score, net

device = xm.xla_device()
criterion = focal_loss
"""


def test_who_brings_it_to_the_host_thinks_that_it_is_on_the_device():
    text = (
        ELSEWHERE
        + """
for x, y in pl.MpDeviceLoader(device_batches, device):
    first, fifth = accuracy(net(x), y, topk=(1, 5))
    top = first[0].item()  # here
    logits = score(net, x)
    kept = logits["all"].detach().cpu().numpy()  # here
    plain = score(net, x).argmax(-1).cpu()  # here
    shown = float(criterion(net(x), y))  # here
    (net(x) - y).sum().backward()
    xm.optimizer_step(opt)
"""
    )
    assert sorted(rows(text, "XLA101") + rows(text, "XLA102")) == marked(text)


def test_what_a_foreign_function_gives_may_be_a_number():
    text = (
        ELSEWHERE
        + """
for x, y in pl.MpDeviceLoader(device_batches, device):
    hits = accuracy(net(x), y)
    if hits > 0.5 and score(net, x).best:
        print(f"{hits:.3f}", float(hits))
    (net(x) - y).sum().backward()
    xm.optimizer_step(opt)
"""
    )
    assert not {"XLA101", "XLA102", "XLA103", "XLA104"} & set(codes(text))


def test_loops_of_cores_that_were_threads_are_loops_over_the_device():
    text = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
from project import Net, data

def train_loop(net, batches, device, context):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        xm.optimizer_step(opt)
        print(f"{loss:.3f}")  # here

def test_loop(net, batches, device, context):
    net.eval()
    for x, y in batches:
        hits = net(x).argmax(1).eq(y).sum().item()  # here

loader = torch.utils.data.DataLoader(data, batch_size=8, drop_last=True)
parallel = dp.DataParallel(Net, device_ids=xm.get_xla_supported_devices())
for epoch in range(10):
    parallel(train_loop, loader)
    parallel(test_loop, loader)
"""
    assert sorted(rows(text, "XLA101") + rows(text, "XLA103")) == marked(text)


def test_a_causal_mask_is_made_on_the_cpu_too():
    text = program(
        """
        for x in pl.MpDeviceLoader(loader, device):
            mask = torch.triu(torch.ones(64, 64), diagonal=1).unsqueeze(0).to(device)  # here
            loss = (model(x) * mask).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
        """
    )
    assert rows(text, "XLA604") == marked(text)


@pytest.mark.parametrize(
    "fault",
    ["not torch.isfinite(loss)", "loss.isnan().any()", "torch.isnan(loss) or torch.isinf(loss)"],
)
def test_what_is_told_of_a_loss_that_is_lost_is_rare(fault):
    text = program(
        f"""
        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            if {fault}:  # here
                print("lost", loss.item())
                continue
            loss.backward()
            xm.optimizer_step(optimizer)
        """
    )
    assert rows(text, "XLA101") == []
    assert set(rows(text, "XLA104") + rows(text, "XLA106")) == set(marked(text))


def test_a_finite_loss_is_the_usual_one():
    text = program(
        """
        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            if torch.isfinite(loss):
                print("kept", loss.item())  # here
            loss.backward()
            xm.optimizer_step(optimizer)
        """
    )
    assert rows(text, "XLA101") == marked(text)


def test_a_batch_that_is_moved_part_by_part_stays_a_dictionary():
    text = program(
        """
        losses = torch.zeros(len(loader))
        for step, batch in enumerate(loader):
            for key, value in batch.items():
                batch[key] = value.to(device)
            loss = model(**batch).sum()
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            losses[step] = loss.detach()  # here
        """
    )
    assert rows(text, "XLA101") == marked(text)


@pytest.mark.parametrize("other", ["is_sagemaker_mp_enabled()", "is_torch_npu_available()"])
def test_branches_for_other_hardware_are_not_judged(other):
    text = program(
        f"""
        from project import forward, is_sagemaker_mp_enabled, is_torch_npu_available
        for x in pl.MpDeviceLoader(loader, device):
            if {other}:
                shown = forward(model, x).reduce_mean().detach().cpu()
            loss = model(x).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
        """
    )
    assert "XLA101" not in codes(text)


def test_a_cast_of_a_tensor_is_a_tensor():
    text = program(
        """
        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            positive = (x > 0).type(torch.float32)
            print(positive.mean().item(), x.type())  # here
        """
    )
    assert rows(text, "XLA101") == marked(text)
    assert "XLA103" not in codes(text)


def test_the_master_goes_first_through_a_helper_that_waits():
    text = """\
import contextlib
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

class State:
    def wait(self):
        xm.rendezvous("everyone")

    @contextlib.contextmanager
    def first(self, is_master):
        if not is_master:
            self.wait()
        yield
        if is_master:
            self.wait()

    def main_first(self):
        yield from self.first(xm.is_master_ordinal())

def core(index):
    State().main_first()

xmp.spawn(core)
"""
    assert "XLA405" not in codes(text)
    once = text.replace("        yield\n        if is_master:\n            self.wait()\n", "")
    assert "XLA405" in codes(once)


def test_a_loss_of_another_package_gives_a_tensor():
    text = (
        ELSEWHERE.replace("accuracy", "StructureLoss, accuracy")
        + """
objective = StructureLoss(weights=0.5)
net.eval()
with torch.no_grad():
    for x, y in pl.MpDeviceLoader(device_batches, device):
        loss, parts = objective(net(x), y)
        print(loss.item())  # here
"""
    )
    assert sorted(rows(text, "XLA101")) == marked(text)


def test_meeting_in_every_step_on_xla_devices_only_is_told():
    text = program(
        """
        def epoch(batches, use_tpu, mean):
            for x in batches:
                loss = model(x.to(device)).sum()
                loss.backward()
                xm.optimizer_step(optimizer, barrier=True)
                if use_tpu:
                    shown = xm.mesh_reduce("loss", loss, mean)  # here
                    print(shown.item())
                else:
                    print(loss.item())

        epoch(loader, True, sum)
        """
    )
    assert rows(text, "XLA423") == marked(text)
    assert "XLA101" not in codes(text)


def test_sharded_batches_are_given_their_sharding():
    text = """\
import numpy as np
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
device = xm.xla_device()
mesh = xs.Mesh(np.arange(8), (8, 1), ("data", "model"))
net = torch.nn.Linear(4, 4).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([], batch_size=8, drop_last=True)
for x in loader:
    x = x.to(device)
    xs.mark_sharding(x, mesh, ("data", None))
    net(x).sum().backward()
    opt.step()
    xm.mark_step()
"""
    [found] = [f for f in engine.lint(Source("t.py", text)).findings if f.code == "XLA603"]
    assert "input_sharding" in found.suggestion
    assert found.fix is None


def test_the_rest_is_held_back_whatever_the_test_looks_like():
    text = """\
import contextlib
import torch.distributed as dist
import torch_xla.core.xla_model as xm

@contextlib.contextmanager
def first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()
"""
    assert "XLA405" not in codes(text)


def test_fabric_puts_on_the_device_what_it_is_given():
    text = """\
import lightning as L
import torch
import torch_xla.core.xla_model as xm
from project import Net, chunked_cross_entropy, data

def batch(fabric, step):
    x, y = torch.stack(data[step]), torch.stack(data[step + 1])
    x, y = fabric.to_device((x, y))
    return x, y

@torch.no_grad()
def validate(fabric, model, turns):
    losses = torch.zeros(turns)
    for k in range(turns):
        x, y = batch(fabric, k)
        logits = model(x)
        xm.mark_step()
        losses[k] = chunked_cross_entropy(logits[..., :-1, :], y[..., 1:])  # here
    return losses.mean()

def train(fabric, model, optimizer):
    for step in range(1000):
        x, y = batch(fabric, step)
        loss = chunked_cross_entropy(model(x), y)
        fabric.backward(loss)
        optimizer.step()
        xm.mark_step()
        print(x.sum().item())  # here
        if step % 100 == 0:
            validate(fabric, model, 10)

def main(fabric):
    model, optimizer = fabric.setup(Net(), torch.optim.AdamW(Net().parameters()))
    train(fabric, model, optimizer)
"""
    assert sorted(rows(text, "XLA101")) == marked(text)


@pytest.mark.parametrize(
    "setting",
    ["not use_tpu", "bool(config) and not use_tpu", "device.type != 'xla'", "backend == 'cuda'"],
)
def test_checks_that_are_switched_off_on_xla_devices_cost_nothing_there(setting):
    text = program(
        f"""
        def train(config, use_tpu, backend):
            checked = {setting}
            for x in pl.MpDeviceLoader(loader, device):
                loss = model(x).sum()
                if checked and loss > 10:
                    print(loss.item())
                loss.backward()
                xm.optimizer_step(optimizer)
        """
    )
    assert not {"XLA101", "XLA104"} & set(codes(text))


def test_checks_that_are_made_on_xla_devices_too_are_told():
    text = program(
        """
        def train(config, use_tpu):
            checked = bool(config) or use_tpu
            for x in pl.MpDeviceLoader(loader, device):
                loss = model(x).sum()
                if checked and loss > 10:  # here
                    print(loss.item())  # here
                loss.backward()
                xm.optimizer_step(optimizer)
        """
    )
    assert sorted(rows(text, "XLA101") + rows(text, "XLA104")) == marked(text)


def test_functions_that_ignite_calls_for_every_batch_are_loops():
    text = """\
import torch
import torch_xla.core.xla_model as xm
from ignite.engine import Engine, create_supervised_evaluator, create_supervised_trainer

device = xm.xla_device()
net = torch.nn.Linear(4, 4).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loss_fn = torch.nn.MSELoss()

def update(engine, batch):
    x, y = batch[0].to(device), batch[1].to(device)
    loss = loss_fn(net(x), y)
    loss.backward()
    xm.optimizer_step(opt, barrier=True)
    return loss.item()  # here

def predict(engine, batch):
    with torch.no_grad():
        return net(batch[0].to(device)).cpu()  # here

def named(x, y, y_pred, loss):
    return {"loss": loss.item()}  # here

trainer = Engine(update)
evaluator = Engine(predict)
other = create_supervised_trainer(net, opt, loss_fn, device, output_transform=named)
plain = create_supervised_trainer(net, opt, loss_fn, device)
judge = create_supervised_evaluator(
    net,
    output_transform=lambda x, y, y_pred: (y_pred.cpu(), y),  # here
)

def once(engine):
    print(net.weight.sum().item())

trainer.add_event_handler("completed", once)
"""
    assert sorted(rows(text, "XLA101")) == marked(text)


def test_a_dictionary_that_takes_in_another_holds_its_tensors():
    text = program(
        """
        for x in pl.MpDeviceLoader(loader, device):
            parts = {"mean": model(x).mean(), "sum": model(x).sum()}
            loss = sum(parts.values())
            loss.backward()
            xm.optimizer_step(optimizer)
            for name, value in {"loss": loss, **parts}.items():
                print(name, value.item())  # here
        """
    )
    assert rows(text, "XLA101") == marked(text)


SEARCH = """
import pickle
import torch
import torch_xla
import torch.distributed as dist
import torch_xla.runtime as xr

def search(trainer, trials):
    dist.init_process_group("xla")
    if xr.global_ordinal() == 0:
        for trial in trials.offline():
            dist.broadcast_object_list([pickle.dumps(trial)], src=0)
            trainer.train()
        while trials.left():
            dist.broadcast_object_list([pickle.dumps(trials.ask())], src=0)
            trainer.train()
    else:
        for _ in range(len(trials)):
            chosen = [None]
            OTHERS
            trainer.train()

def _mp_fn(index):
    search(Trainer(), Trials())

torch_xla.launch(_mp_fn)
"""


def test_a_search_that_sends_each_trial_to_the_others_meets_them() -> None:
    together = SEARCH.replace("OTHERS", "dist.broadcast_object_list(chosen, src=0)")
    assert "XLA405" not in codes(together)
    assert "XLA405" in codes(SEARCH.replace("OTHERS", "print(chosen)"))


STOPPING = """
import os
import torch
import torch_xla
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

CORES = int(os.environ.get("WORLD_SIZE", "1"))

def over_cores(values):
    if CORES > 1:
        dist.all_reduce(values)
    return (values / CORES).tolist()

def validate(model, loader, device):
    total = torch.zeros(2, device=device)
    for x, y in loader:
        total += model(x.to(device)).sum()
    return over_cores(total / len(loader))

def _mp_fn(index):
    device = torch_xla.device()
    model = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sampler = DistributedSampler(dataset, xr.world_size(), xr.global_ordinal())
    train_loader = DataLoader(dataset, 8, sampler=sampler, drop_last=True)
    valid_loader = DataLoader(dataset, 8, sampler=sampler, drop_last=True)
    best, waited = float("inf"), 0
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            model(x.to(device)).sum().backward()
            xm.optimizer_step(optimizer, barrier=True)
        valid_loss, accuracy = validate(model, valid_loader, device)
        waited = 0 if valid_loss < best else waited + 1
        best = min(best, valid_loss)
        if waited >= 3:
            break

torch_xla.launch(_mp_fn)
"""


def test_what_is_reduced_where_there_are_several_cores_is_equal_on_all():
    assert "XLA420" not in codes(STOPPING)
    sometimes = STOPPING.replace("if CORES > 1:", "if os.path.exists('exact'):")
    alone = STOPPING.replace("        dist.all_reduce(values)\n", "        values += 0\n")
    assert ["XLA420" in codes(text) for text in (sometimes, alone)] == [True, True]
