"""What one file says without the others: appends, scores, adapters, helpers by their names."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, found_in_files, marks, rows

APPENDS = """
import csv
import json
from pathlib import Path

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

RUNS = Path("runs")


def _mp_fn(index, args, loader, rest):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    every = open("every.log", "a")  # !XLA406
    for epoch in range(args.epochs):
        for x in loader:
            loss = net(x.to(device)).sum()
            loss.backward()
            xm.optimizer_step(None, barrier=True)
        with open(args.out + "/log.txt", "a") as file:  # !XLA406
            file.write(f"{epoch} {loss.item()}\\n")
        with (RUNS / "losses.csv").open("a", newline="") as file:  # !XLA406
            table = csv.writer(file)
            table.writerow([epoch, loss.item()])
        print(epoch, file=every)
        with open("events.jsonl", mode="at") as file:  # !XLA406
            json.dump({"epoch": epoch}, file)
        open("note", "a").write("done")  # !XLA406
        with open("by_rank.txt", "a") as file:
            file.write(f"{xr.global_ordinal()} {epoch}\\n")
        with open("by_word.txt", "a") as file:
            file.write(f"worker at {epoch}\\n")
        with open("by_first.txt", "a") as file:
            if xm.is_master_ordinal():
                file.write(f"{epoch}\\n")
        if xm.is_master_ordinal():
            with open("first.txt", "a") as file:
                file.write(f"{epoch}\\n")
        with open(f"own_{index}.txt", "a") as file:
            file.write(f"{epoch}\\n")
        net.eval()
        with torch.no_grad(), open("guesses.txt", "a") as file:
            for x in rest:
                file.write(f"{net(x.to(device)).argmax().item()}\\n")
        results = {}
        if xm.is_master_ordinal():
            results["loss"] = 1.0
        with open("results.txt", "a") as file:
            for name, value in results.items():
                file.write(f"{name} {value}\\n")
        open("read.txt").read()
        RUNS.open("r").read()
    (RUNS / "done.json").open("w").write("{}")  # !XLA406


def main(args):
    torch_xla.launch(_mp_fn, args=(args, [], []))
"""


def test_what_every_core_appends_to():
    assert {pair for pair in found(APPENDS) if pair[1] == "XLA406"} == marks(APPENDS)


def test_an_append_of_one_process_is_left_alone():
    program = """
    import torch_xla

    def train(net, loader, optimizer):
        device = torch_xla.device()
        net.to(device)
        for x in loader:
            net(x.to(device)).sum().backward()
            optimizer.step()
            torch_xla.sync()
        with open("log.txt", "a") as file:
            file.write("done")
    """
    assert "XLA406" not in codes(program)


SCORES = """
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from sklearn import metrics
from sklearn.metrics import f1_score
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

net = torch.nn.Linear(4, 2)


def evaluate(loader, model):
    model.eval()
    outs, truths = [], []
    with torch.no_grad():
        for x, y in loader:
            outs.extend(model(x).cpu().numpy().tolist())
            truths.extend(y.cpu().numpy().tolist())
    return outs, truths


def _mp_fn(index, data):
    device = torch_xla.device()
    model = net.to(device)
    sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal(), shuffle=False)
    loader = pl.MpDeviceLoader(DataLoader(data, batch_size=8, sampler=sampler), device)
    outs, truths = evaluate(loader, model)
    area = metrics.roc_auc_score(np.array(truths) >= 0.5, outs)
    xm.master_print(f"AUC = {area}")  # !XLA427
    if xm.is_master_ordinal():
        print("F1", f1_score(truths, outs))  # !XLA427
    right = np.mean(np.array(truths) == np.array(outs))
    xm.master_print("accuracy", right)  # !XLA427
    mean = xm.mesh_reduce("area", area, np.mean)
    xm.master_print("mean AUC", mean)
    all_outs = xm.mesh_reduce("outs", outs, lambda parts: sum(parts, []))
    all_truths = xm.mesh_reduce("truths", truths, lambda parts: sum(parts, []))
    whole = f1_score(all_truths, all_outs)
    xm.master_print("F1 of all", whole)
    samples = len(outs)
    xm.master_print("samples of this shard", samples)


def main(data):
    torch_xla.launch(_mp_fn, args=(data,), start_method="fork")
"""


def test_scores_of_what_an_evaluation_gave_are_of_one_shard():
    assert {pair for pair in found(SCORES) if pair[1] == "XLA427"} == marks(SCORES)


def test_scores_of_data_that_is_not_shared_out_are_whole():
    whole = SCORES.replace("batch_size=8, sampler=sampler", "batch_size=8")
    assert "XLA427" not in codes(whole)


ADAPTERS = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, set_seed


def build(device):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model = get_peft_model(model, LoraConfig(r=8))  # here
    model = model.to(device)
    return model


def train(rank, loader):
    device = xm.xla_device()
    {seed}
    model = build(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)


if __name__ == "__main__":
    xmp.spawn(train, args=([],))
"""


@pytest.mark.parametrize(
    ("seed", "told"), [("set_seed(42 + rank)", 1), ("pass", 1), ("set_seed(42)", 0)]
)
def test_adapters_that_every_core_draws(seed, told):
    program = ADAPTERS.replace("{seed}", seed)
    assert len(rows(program, "XLA426")) == told


def test_a_pretrained_model_without_adapters_is_the_same_on_all_cores():
    plain = ADAPTERS.replace("    model = get_peft_model(model, LoraConfig(r=8))  # here\n", "")
    assert not rows(plain.replace("{seed}", "set_seed(42 + rank)"), "XLA426")


TURNS = """
import torch
import torch.nn as nn
import torchvision
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(x)


def train(index, loader):
    device = torch_xla.device()
    for turn in range(xr.world_size()):
        if index == turn:
            net = Net().to(device)  # !XLA426
            data = torchvision.datasets.CIFAR10("data", download=True)
        xm.rendezvous(f"turn_{turn}")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        net(x.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)


def main(loader):
    torch_xla.launch(train, args=(loader,))
"""


def test_models_that_the_cores_make_one_after_the_other():
    asked = {"XLA406", "XLA426"}
    assert {pair for pair in found(TURNS) if pair[1] in asked} == marks(TURNS)
    seeded = TURNS.replace(
        "    device = torch_xla.device()\n",
        "    torch.manual_seed(1)\n    device = torch_xla.device()\n",
    )
    assert "XLA426" not in codes(seeded)


PROCESSES = """
import multiprocessing

import torch
import torch.multiprocessing as mp
import torch_xla
import torch_xla.core.xla_model as xm


def evaluate(path):
    device = xm.xla_device()
    net = torch.nn.Linear(4, 4).to(device)
    print(net(torch.ones(4, device=device)))


def load(queue):
    queue.put(torch.ones(4))


def main():
    {body}
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("torch_xla.device(); mp.Process(target=evaluate, args=('a',)).start()", True),
        ("xm.master_print('go'); mp.get_context('spawn').Process(target=evaluate).start()", True),
        ("print(xm.xla_device()); mp.spawn(evaluate, nprocs=2)", True),
        ("torch_xla.device(); multiprocessing.Process(target=load, args=(1,)).start()", False),
        ("multiprocessing.Process(target=evaluate, args=('a',)).start(); xm.xla_device()", False),
        (
            "import os; os.environ['TPU_VISIBLE_CHIPS'] = '0'; xm.xla_device(); mp.spawn(evaluate)",
            False,
        ),
        ("torch_xla.device(); mp.Queue()", False),
    ],
)
def test_processes_beside_one_that_has_the_device(body, told):
    assert bool(rows(PROCESSES.replace("{body}", body), "XLA407")) == told


CLIPS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

import utils
from helpers.grads import clip_gradients as shorten
from models import Net
from neuronx_distributed.parallel_layers.grads import clip_grad_norm as of_library


def _mp_fn(index, loader, args):
    device = torch_xla.device()
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        net(x).sum().backward()
        utils.clip_gradients(net, args.clip)  # !XLA303
        shorten(net.parameters(), 3.0)  # !XLA303
        utils.clip_grad_value(net, 1.0)
        utils.clip_grad(net, optimizer, 1.0)
        utils.clip_boxes(net, 1.0)
        of_library(net.parameters(), 1.0)
        xm.optimizer_step(optimizer)


def main(args):
    torch_xla.launch(_mp_fn, args=([], args))
"""


def test_helpers_that_clip_by_their_name():
    assert {pair for pair in found(CLIPS) if pair[1] == "XLA303"} == marks(CLIPS)


REDUCES = """
import torch_xla.core.xla_model as xm


def clip_gradients(net, most):
    xm.all_reduce("sum", [p.grad for p in net.parameters()])
"""


def test_a_helper_that_is_read_is_believed(tmp_path):
    told = found_in_files(tmp_path, {"train.py": CLIPS, "utils.py": REDUCES})
    kept = {pair for pair in marks(CLIPS) if pair[0] > min(row for row, _ in marks(CLIPS))}
    assert {pair for pair in told["train.py"] if pair[1] == "XLA303"} == kept


CLOCKS = """
import time

import torch
import torch_xla


def train(loader, budget, tracker):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    begun = time.time()
    for x in loader:
        start = time.time()
        net(x.to(device)).sum().backward()
        optimizer.step()
        torch_xla.sync()
        tracker.duration = time.time() - start  # !XLA112
        extracted = time.time() - start  # !XLA112
        tracing = time.time() - start
        trace_time = time.time() - start
        left = budget - (time.time() - begun)
        if time.time() - begun > budget:
            break
        speed = len(x) / (time.time() - begun)  # !XLA112
        print(left, speed, extracted, tracing, trace_time)
"""


def test_clocks_of_trackers_and_of_budgets():
    assert {pair for pair in found(CLOCKS) if pair[1] == "XLA112"} == marks(CLOCKS)


GAN = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def train(loader, generator, discriminator, loss_of, opt_d, opt_g, args):
    device = torch_xla.device()
    generator.to(device)
    discriminator.to(device)
    for x in loader:
        real = loss_of(discriminator(x.to(device)), 1)
        if args.device == "cuda":
            scaler.scale(real).backward()
        else:
            real.backward()
        fake = generator(torch.randn(8, 4, device=device))
        false = loss_of(discriminator(fake.detach()), 0)
        if args.device == "cuda":
            scaler.scale(false).backward()
        else:
            false.backward()
        xm.optimizer_step(opt_d, barrier=True)  # !XLA319
        if args.device == "cuda":
            error = loss_of(discriminator(fake), 1)
            scaler.scale(error).backward()
        else:
            error = loss_of(discriminator(fake), 1)
            error.backward()
        xm.optimizer_step(opt_g, barrier=True)
"""


def test_a_discriminator_step_before_a_backward_pass_of_two_branches():
    assert {pair for pair in found(GAN) if pair[1] == "XLA319"} == marks(GAN)
    later = GAN.replace(
        "loss_of(discriminator(fake), 1)", "loss_of(discriminator(generator(x)), 1)"
    )
    assert "XLA319" not in codes(later)


SHARES = """
import itertools

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from tqdm import tqdm


def _mp_fn(index, batches, most):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    world = xr.world_size()
    for batch in batches[index::world]:  # !XLA420
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    mine = batches[xr.global_ordinal() :: xr.world_size()]  # !XLA420
    for i, batch in enumerate(tqdm(mine)):
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    for i in range(index, len(batches), world):  # !XLA420
        net(batches[i].to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    for batch in itertools.islice(batches, index, None, world):  # !XLA420
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    even = batches[: len(batches) // world * world]
    for batch in even[index::world]:
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    whole = len(batches) - len(batches) % world
    for i in range(index, whole, world):
        net(batches[i].to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    for i, batch in enumerate(batches[index::world]):
        if i == most:
            break
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    with torch.no_grad():
        for batch in batches[index::world]:
            print(index, net(batch.to(device)).sum().item())
    for batch in batches[1::2]:
        net(batch.to(device)).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)


def main(batches):
    torch_xla.launch(_mp_fn, args=(batches, 100))
"""


def test_shares_that_need_not_be_of_one_length():
    assert {pair for pair in found(SHARES) if pair[1] == "XLA420"} == marks(SHARES)
