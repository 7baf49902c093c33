"""What ``make mutants`` showed to be missed, and what near it stays silent (all invented)."""

from __future__ import annotations

import textwrap

import pytest

from tests.lint.rule_helpers import codes, marked, rows
from xladoctor.lint import engine
from xladoctor.lint.asked import LintOptions, Member
from xladoctor.lint.sources import Source

HEAD = """
    import numpy as np
    import torch
    import torch.nn.functional as F
    import torch_xla
    import torch_xla.core.functions as xf
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
"""


def program(text):
    lines = textwrap.dedent(HEAD).splitlines(keepends=True)
    head = (line for line in lines if "FSDP" not in line or "FSDP(" in text)
    return "".join(head) + textwrap.dedent(text)


FOUND = {
    "XLA318": """
        def pairs(x):
            table = x.to(torch_xla.device()).expand(2, -1)
            table += 1  # here
            return table
    """,
    "XLA444 parameter": """
        def shard(model, grid):
            xs.mark_sharding(model.head.weight, grid, ("rows", None))  # here

        def main(model, count):
            mesh = xs.Mesh(np.arange(count), (count, 1), ("data", "model"))
            shard(model.to(torch_xla.device()), mesh)
    """,
    "XLA444 attribute": """
        class Job:
            def __init__(self, count):
                self.mesh = xs.Mesh(np.arange(count), (count, 1), ("data", "model"))

            def shard(self, model):
                xs.mark_sharding(model.head.weight, self.mesh, ("rows", None))  # here
    """,
    "XLA429": """
        xr.use_spmd()

        def shard(model, mesh):
            xs.mark_sharding(model.head.weight, mesh, ("data", None))

        def train(model, optimizer, loader, mesh):
            shard(model, mesh)
            for images in pl.MpDeviceLoader(loader, torch_xla.device()):  # here
                model(images).mean().backward()
                optimizer.step()

        def train_by_hand(model, optimizer, loader, mesh):
            for images in pl.MpDeviceLoader(loader, torch_xla.device()):
                xs.mark_sharding(images, mesh, ("data", None))
                model(images).mean().backward()
                optimizer.step()
    """,
    "XLA306": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(100, 8)
                self.head = torch.nn.Linear(8, 100, bias=False)
                self.tie()

            def tie(self):
                self.head.weight = self.embed.weight  # here

        model = Net().to(torch_xla.device())
    """,
    "XLA326": """
        def _mp_fn(index, model, batches):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, torch_xla.device()):
                model(images).sum().backward()
                for p in model.parameters():
                    p.grad = xm.all_reduce(xm.REDUCE_SUM, p.grad)
                optimizer.step()  # here

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA420": """
        def _mp_fn(index, net, batches):
            device = torch_xla.device()
            model = FSDP(net.to(device))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, device):
                optimizer.zero_grad()
                loss = model(images).sum()
                loss.backward()
                optimizer.step()
                if loss.item() > 100:
                    break  # here

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA608": """
        def fit(model, loader, optimizer, device):
            batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
            for step, images in enumerate(batches):
                model(images).sum().backward()
                xm.optimizer_step(optimizer)
                if step == 100:
                    break  # here

        def epoch_of(model, loader, optimizer, device):
            fit(model, loader, optimizer, device)

        def main(model, loader, optimizer):
            for epoch in range(3):
                epoch_of(model, loader, optimizer, torch_xla.device())
    """,
    "XLA415": """
        class Job:
            def __init__(self, model, loader):
                self.device = torch_xla.device()
                self.model = model.to(self.device)
                parallel = pl.ParallelLoader(loader, [self.device])
                self.batches = parallel.per_device_loader(self.device)  # here

            def run(self, optimizer):
                for epoch in range(3):
                    for images in self.batches:
                        self.model(images).sum().backward()
                        xm.optimizer_step(optimizer)
    """,
    "XLA433": """
        def contrast(images, texts):
            everyone = xm.all_gather(texts)  # here
            logits = images @ everyone.T
            return F.cross_entropy(logits, torch.arange(8, device=images.device))

        def _mp_fn(index, net, batches):
            device = torch_xla.device()
            model = torch.nn.Linear(8, 4).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images, texts in pl.MpDeviceLoader(batches, device):
                optimizer.zero_grad()
                loss = contrast(model(images), model(texts))
                loss.backward()
                xm.optimizer_step(optimizer)

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA301": """
        def epoch_of(model, optimizer, images):
            for _ in range(200):
                optimizer.zero_grad()
                model(images).sum().backward()
                optimizer.step()  # here

        def main(model):
            device = torch_xla.device()
            model.to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            images = torch.randn(8, 4, device=device)
            for epoch in range(3):
                epoch_of(model, optimizer, images)
                torch_xla.sync()
    """,
    "XLA319": """
        class Net(torch.nn.Module):
            def forward(self, images):
                return images.mean(1)

        def denoising(model, images):
            return F.mse_loss(model(images), images)

        def main(batches):
            device = torch_xla.device()
            model = Net().to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, device):
                loss = denoising(model, images)
                torch_xla.sync()  # here
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
    "XLA732": """
        class Job:
            def __init__(self, device):
                net = torch.nn.Linear(8, 2)
                self.model = FSDP(net.to(device, dtype=torch.bfloat16))  # here
                self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
    """,
    "XLA436": """
        def step(model, optimizer, images):
            model(images).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
            optimizer.step()

        def _mp_fn(index, net, batches):
            model = FSDP(net.to(torch_xla.device()))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, torch_xla.device()):
                optimizer.zero_grad()
                step(model, optimizer, images)

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA903": """
        import lightning.pytorch

        trainer = lightning.pytorch.Trainer(
            accelerator="tpu",
            enable_progress_bar=False,
            log_every_n_steps=1,  # here
        )
    """,
    "XLA315 carried": """
        def step(model, optimizer, images, total):
            optimizer.zero_grad()
            loss = model(images).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss  # here
            return total

        def main(model, optimizer, batches):
            total = 0.0
            for images in pl.MpDeviceLoader(batches, torch_xla.device()):
                total = step(model, optimizer, images, total)
    """,
    "XLA315 accelerator": """
        from accelerate import Accelerator

        def main(model, optimizer, loader):
            accelerator = Accelerator()
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            total = 0.0
            for images in loader:
                optimizer.zero_grad()
                loss = model(images).sum()
                accelerator.backward(loss)
                optimizer.step()
                total += loss  # here
    """,
    "XLA206": """
        def step(model, images, seen):
            seen = torch.cat([seen, model(images).detach()])  # here
            return seen

        def main(model, optimizer, batches):
            device = torch_xla.device()
            seen = torch.zeros(0, device=device)
            for images in pl.MpDeviceLoader(batches, device):
                model(images).sum().backward()
                xm.optimizer_step(optimizer)
                seen = step(model, images, seen)
    """,
    "XLA320": """
        def check(model, batches):
            model.eval()
            return sum(
                model(images).sum()  # here
                for images in batches
            )

        def main(net, loader):
            device = torch_xla.device()
            model = torch.nn.Linear(8, 2).to(device)
            print(check(model, pl.MpDeviceLoader(loader, device)))
    """,
    "XLA427": """
        def accuracy(model, batches):
            model.eval()
            hits = 0
            with torch.no_grad():
                for images, labels in batches:
                    hits += (model(images).argmax(1) == labels).sum().item()
            return hits

        def _mp_fn(index, net, data):
            device = torch_xla.device()
            model = net.to(device)
            sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal())
            batches = pl.MpDeviceLoader(DataLoader(data, 8, sampler=sampler), device)
            xm.master_print(f"hits {accuracy(model, batches)}")  # here

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA205": """
        def step(model, images, noise, at):
            return model(images + noise[at])  # here

        def main(model, optimizer, batches):
            device = torch_xla.device()
            noise = torch.randn(1000, device=device)
            for number, images in enumerate(pl.MpDeviceLoader(batches, device)):
                step(model, images, noise, number).sum().backward()
                xm.optimizer_step(optimizer)
    """,
    "XLA606": """
        import PIL.Image

        class Pictures(torch.utils.data.Dataset):
            def __getitem__(self, index):
                return PIL.Image.open(self.names[index])

        class Job:
            def __init__(self, model):
                self.data = Pictures()
                self.loader = DataLoader(self.data, batch_size=8, drop_last=True)  # here
                self.model = model

            def run(self, optimizer):
                for images in pl.MpDeviceLoader(self.loader, torch_xla.device()):
                    self.model(images).sum().backward()
                    xm.optimizer_step(optimizer)
    """,
    "XLA447": """
        class Job:
            def run(self, data, mesh):
                xr.use_spmd()
                self.sampler = DistributedSampler(data, xr.process_count(), xr.process_index())
                self.loader = DataLoader(data, 64, sampler=self.sampler, drop_last=True)
                self.spec = xs.ShardingSpec(mesh, ("data", None))  # here
                return pl.MpDeviceLoader(
                    self.loader, torch_xla.device(), input_sharding=self.spec
                )
    """,
    "XLA502": """
        def main(net, loader):
            criterion = torch.nn.CrossEntropyLoss()
            for images, labels in pl.MpDeviceLoader(loader, torch_xla.device()):
                loss = criterion(net(images), labels)
                loss.to_sparse()  # here
    """,
}
FOUND |= {
    "XLA302": """
        def _mp_fn(index, first, second, batches):
            device = torch_xla.device()
            one = torch.optim.SGD(first.parameters(), lr=0.1)
            other = torch.optim.SGD(second.parameters(), lr=0.1)
            seen = torch.zeros((), device=device)
            for images in pl.MpDeviceLoader(batches, device):
                one.zero_grad()
                other.zero_grad()
                second(first(images)).sum().backward()
                xm.optimizer_step(one)
                other.step()  # here
                seen += 1
            seen = xm.all_reduce(xm.REDUCE_SUM, seen)

        torch_xla.launch(_mp_fn, args=(None, None, None))
    """,
    "XLA401": """
        def accuracy(model, device):
            return model.hits

        def _mp_fn(index, model):
            device = torch_xla.device()
            print(f"hits {accuracy(model, device)}")  # here

        torch_xla.launch(_mp_fn, args=(None,))
    """,
    "XLA209": """
        from transformers import AutoTokenizer

        words = AutoTokenizer.from_pretrained("gpt2")

        def join(rows):
            return words(rows, padding=True, return_tensors="pt")  # here

        def main(model, optimizer, data):
            loader = DataLoader(data, batch_size=8, collate_fn=join, drop_last=True)
            for batch in pl.MpDeviceLoader(loader, torch_xla.device()):
                model(**batch).loss.backward()
                optimizer.step()
    """,
    "XLA718": """
        import lightning.pytorch

        class Net(lightning.pytorch.LightningModule):
            def train_dataloader(self):
                return DataLoader(
                    self.data,
                    batch_size=8,
                    shuffle=True,
                    drop_last=True,
                    pin_memory=True,  # here
                )

        lightning.pytorch.Trainer(accelerator="tpu").fit(Net())
    """,
}
SILENT = {
    "XLA302": """
        def _mp_fn(index, model, batches):
            device = torch_xla.device()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, device):
                optimizer.zero_grad()
                model(images).sum().backward()
                gradients = [p.grad for p in model.parameters()]
                xm.all_reduce(xm.REDUCE_SUM, gradients, scale=1.0 / xr.world_size())
                optimizer.step()

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA401": """
        def _mp_fn(index, model):
            device = torch_xla.device()
            print(f"{device}: begins")

        torch_xla.launch(_mp_fn, args=(None,))
    """,
    "XLA318": """
        def pairs(x):
            table = x.to(torch_xla.device()).expand(2, -1).clone()
            table += 1
            return table
    """,
    "XLA444": """
        def shard(model, grid):
            xs.mark_sharding(model.head.weight, grid, ("rows", None))

        def main(model, count):
            # Two meshes: which of them it is depends on the caller.
            shard(model, xs.Mesh(np.arange(count), (count, 1), ("data", "model")))
            shard(model, xs.Mesh(np.arange(count), (count, 1), ("rows", "model")))
    """,
    "XLA306": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(100, 8)
                self.head = torch.nn.Linear(8, 100, bias=False)
                self.tie()

            def tie(self):
                self.head.weight = self.embed.weight

        model = Net().to(torch_xla.device())
        model.tie()
    """,
    "XLA301": """
        def few_steps(model, optimizer, images):
            for _ in range(8):
                optimizer.zero_grad()
                model(images).sum().backward()
                optimizer.step()

        def main(model, batches):
            device = torch_xla.device()
            model.to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, device):
                few_steps(model, optimizer, images)
    """,
    "XLA315": """
        def step(model, optimizer, images, total):
            optimizer.zero_grad()
            loss = model(images).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            # It starts anew with each step.
            total += loss
            return total.item()

        def main(model, optimizer, batches):
            for images in pl.MpDeviceLoader(batches, torch_xla.device()):
                shown = step(model, optimizer, images, 0.0)
    """,
    "XLA433": """
        def seen(images):
            return xm.all_reduce("sum", images.sum())

        def _mp_fn(index, model, batches):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for images in pl.MpDeviceLoader(batches, torch_xla.device()):
                optimizer.zero_grad()
                total = seen(images)
                loss = model(images).mean()
                loss.backward()
                xm.optimizer_step(optimizer)

        torch_xla.launch(_mp_fn, args=(None, None))
    """,
    "XLA206": """
        def step(model, images, parts):
            parts = torch.cat([parts, model(images).detach()])
            return parts

        def main(model, optimizer, batches):
            device = torch_xla.device()
            for images in pl.MpDeviceLoader(batches, device):
                model(images).sum().backward()
                xm.optimizer_step(optimizer)
                joined = step(model, images, torch.zeros(0, device=device))
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    text = program(FOUND[name])
    assert rows(text, name.partition(" ")[0]) == marked(text)


@pytest.mark.parametrize("name", SILENT)
def test_silent(name):
    assert name not in codes(program(SILENT[name]))


TRAIN = """
    def _mp_fn(index, model, data):
        device = torch_xla.device()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal(), shuffle=False)
        loader = DataLoader(data, 8, sampler=sampler, drop_last=True)
        for images in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            model(images).sum().backward()
            xm.optimizer_step(optimizer)
"""


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("_mp_fn(0, None, None)", True),
        ("def main():\n    _mp_fn(0, None, None)\n\nmain()", True),
        ("_mp_fn(None, None, None)", True),
        # Never run by this file, or on a condition, or by somebody else.
        ("def main():\n    _mp_fn(0, None, None)", False),
        ("if xr.device_type() == 'CPU':\n    _mp_fn(0, None, None)", False),
        ("_mp_fn(int(os.environ['LOCAL_RANK']), None, None)", False),
        ("import subprocess\nsubprocess.run(['train'])\n_mp_fn(0, None, None)", False),
        ("torch.distributed.init_process_group('xla')\n_mp_fn(0, None, None)", False),
        ("start = {'train': _mp_fn}\n_mp_fn(0, None, None)", False),
        ("_mp_fn(3, None, None)", False),
        ("torch_xla.launch(_mp_fn, args=(None, None))", False),
    ],
)
def test_a_function_for_one_core_of_many_that_is_called_once(start, found):
    text = program(TRAIN) + "\n\nimport os\n" + start + "\n"
    assert ("XLA449" in codes(text)) is found


def test_what_another_file_starts_is_no_function_that_is_never_spawned():
    script = program(TRAIN) + "\n\n_mp_fn(0, None, None)\n"
    other = "import torch_xla\nimport train\n\ntorch_xla.launch(train._mp_fn, args=(None, None))\n"
    names = {"train": "train.py", "other": "other.py"}
    members = [
        Member(Source("train.py", script), LintOptions(), names),
        Member(Source("other.py", other), LintOptions(), names),
    ]
    results = engine.lint_together(members)
    assert "XLA449" not in {item.code for result in results for item in result.findings}
    [alone] = engine.lint_together(members[:1])
    assert "XLA449" in {item.code for item in alone.findings}
