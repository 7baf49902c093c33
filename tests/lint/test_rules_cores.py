"""Several cores, files and frameworks, on code as people write it (all programs are invented)."""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import codes, marked, rows

PROGRAM = """
    import numpy as np
    import pandas as pd
    import torch
    import torch.distributed as dist
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_multiprocessing as xmp
    import torch_xla.runtime as xr
    from tqdm import tqdm

    def _mp_fn(index, args, model, data):
        for epoch in range(3):
            BODY

    if __name__ == "__main__":
        print("start")
        xmp.spawn(_mp_fn, args=({}, None, None), start_method="fork")
"""


def _with(body):
    lines = body.strip().splitlines()
    return PROGRAM.replace("BODY", ("\n" + " " * 12).join(lines))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("print('epoch', epoch)", "XLA401"),
        ("print(f'epoch {epoch} of 3')", "XLA401"),
        ("for x in tqdm(data): pass", "XLA401"),
        ("np.save('a.npy', data)", "XLA406"),
        ("torch.save(model, f'model-{epoch}.pt')", "XLA406"),
        ("pd.DataFrame(data).to_csv('log.csv')", "XLA406"),
        ("with open('log.txt', 'w') as log: log.write('x')", "XLA406"),
        ("torch.save(model, args.out)", "XLA406"),
        ("if index == 0: xm.rendezvous('a')", "XLA405"),
        ("if xm.is_master_ordinal(): xm.save(model, 'm.pt')", "XLA405"),
        ("if xr.global_ordinal() == 0: dist.barrier()", "XLA405"),
        ("if not xm.is_master_ordinal(): continue\nxm.mesh_reduce('a', 1, sum)", "XLA405"),
    ],
)
def test_a_fault_between_cores_is_found(body, code):
    assert codes(_with(body)) == [code]


@pytest.mark.parametrize(
    "body",
    [
        "xm.master_print('epoch', epoch)",
        "print(f'[core {index}] epoch {epoch}')",
        "print(xm.get_local_ordinal(), epoch)",
        "if index == 0: print('epoch', epoch)",
        "if xm.is_master_ordinal(local=False):\n    print(epoch)\n    np.save('a.npy', data)",
        "if not xm.is_master_ordinal(): continue\nprint(epoch)",
        "try:\n    pass\nexcept OSError as error:\n    print('failed', error)",
        "for x in tqdm(data, disable=not xm.is_master_ordinal()): pass",
        "np.save(f'a-{index}.npy', data)",
        "torch.save(model, args.out + str(xr.global_ordinal()))",
        "path = f'part{index}.csv'\npd.DataFrame(data).to_csv(path)",
        "with open('settings.json') as f: f.read()",
        "with open('log.txt', 'a') as log: log.write(f'{index} x')",
        "xm.save(model, 'm.pt')",
        "xm.rendezvous('a')",
        "if epoch % 5 == 0: xm.rendezvous('a')",
        "if args.verbose: xm.rendezvous('a')",
        "if xr.world_size() > 1: xm.rendezvous('a')",
        "m = xm.is_master_ordinal()\nif not m: xm.rendezvous('a')\nif m: xm.rendezvous('a')",
    ],
)
def test_what_is_right_on_several_cores_is_left_alone(body):
    assert codes(_with(body)) == []


def test_one_process_may_print_and_save():
    program = """
        import torch
        import torch_xla

        def main():
            device = torch_xla.device()
            print("training on", device)
            torch.save({}, "model.pt")

        if __name__ == "__main__":
            main()
    """
    assert codes(program) == []


def test_spmd_is_one_program():
    program = """
        import numpy as np
        import torch
        import torch_xla
        import torch_xla.distributed.spmd as xs
        import torch_xla.runtime as xr

        xr.use_spmd()

        def train(model, data, optimizer):
            device = torch_xla.device()
            mesh = xs.Mesh(np.arange(8), (8,), ("data",))
            model.to(device)
            for step in range(10):
                x = torch.randn(8, 4, device=device)
                xs.mark_sharding(x, mesh, ("data", None))
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
                torch_xla.sync()
                print("step", step)
    """
    assert codes(program) == []


def test_a_gan_clips_and_reduces_both_optimizers_by_hand():
    program = """
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def _mp_fn(index, gen, disc, loader, opt_g, opt_d):
            device = torch_xla.device()
            gen.to(device)
            disc.to(device)
            for real, _ in pl.MpDeviceLoader(loader, device):
                loss = disc(real).mean()
                loss.backward()
                xm.reduce_gradients(opt_d)
                torch.nn.utils.clip_grad_norm_(disc.parameters(), 1.0)
                opt_d.step()
                torch.nn.utils.clip_grad_value_(gen.parameters(), 1.0)
                xm.optimizer_step(opt_g)

        torch_xla.launch(_mp_fn, args=(None, None, None, None, None))
    """
    assert rows(program, "XLA302") == []
    assert rows(program, "XLA303") == []


def test_accelerate_does_the_steps_itself():
    program = """
        import torch
        import torch_xla
        from accelerate import Accelerator
        from torch.utils.data import DataLoader

        def main(model, dataset):
            accelerator = Accelerator()
            optimizer = torch.optim.AdamW(model.parameters())
            loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            for epoch in range(3):
                for x, y in loader:
                    loss = model(x, y).loss
                    accelerator.backward(loss)
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                accelerator.print(epoch)
    """
    assert codes(program) == []
    # Accelerate fills up the last batch, unless it is told not to.
    assert codes(program.replace(", drop_last=True", "")) == []
    uneven = program.replace(", drop_last=True", "").replace(
        "r()", "r(dataloader_config=Config(even_batches=False))"
    )
    assert codes(uneven) == ["XLA203"]


def test_the_fix_of_set_epoch_stays_away_from_a_sampler_that_may_be_none():
    from xladoctor.lint import engine
    from xladoctor.lint.sources import Source

    program = """
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def _mp_fn(index, model, dataset, optimizer, criterion):
    device = torch_xla.device()
    model.to(device)
    sampler = None
    if xr.world_size() > 1:
        sampler = DistributedSampler(dataset, num_replicas=xr.world_size(), rank=index)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, drop_last=True)
    for epoch in range(10):
        for images, labels in pl.MpDeviceLoader(loader, device):
            loss = criterion(model(images), labels)
            loss.backward()
            xm.optimizer_step(optimizer)


torch_xla.launch(_mp_fn, args=(None, None, None, None))
"""
    result = engine.lint(Source("train.py", program))
    found = [item for item in result.findings if item.code == "XLA403"]
    assert len(found) == 1
    assert found[0].fix is None


def test_lightning_methods_run_on_every_core():
    program = """
        import numpy as np
        import lightning.pytorch as pl

        class Model(pl.LightningModule):
            def training_step(self, batch, batch_idx):
                print("step", batch_idx)  # here
                if self.trainer.is_global_zero:
                    print("only here")
                return None

        trainer = pl.Trainer(accelerator="tpu", devices=8)
    """
    assert rows(program, "XLA401") == marked(program)


def test_environment_in_shell_lines_of_a_notebook(tmp_path):
    import json

    from xladoctor.lint import engine, sources

    cell = ["%env XLA_USE_BF16=1\n", "!export XRT_TPU_CONFIG='a;0;b'\n", "%env PJRT_DEVICE=TPU\n"]
    notebook = {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# XLA_USE_BF16"]},
            {
                "cell_type": "code",
                "metadata": {},
                "source": [*cell, "import torch_xla"],
                "outputs": [],
                "execution_count": None,
            },
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps(notebook))
    result = engine.lint(sources.read(path))
    places = [
        (item.code, item.locations[0].cell, item.locations[0].row) for item in result.findings
    ]
    assert places == [("XLA701", 1, 1), ("XLA701", 1, 2)]


def test_an_import_is_added_after_what_must_come_before_torch_xla():
    from xladoctor.lint import engine, fixes
    from xladoctor.lint.sources import Source

    program = """import os
os.environ["PJRT_DEVICE"] = "TPU"
import torch_xla.core.xla_model as xm
print(xm.get_ordinal())
"""
    done = fixes.fix(
        program.encode(), "a.py", lambda source: engine.lint(Source("a.py", source.text))
    )
    assert (
        done.data.decode()
        == """import os
os.environ["PJRT_DEVICE"] = "TPU"
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
print(xr.global_ordinal())
"""
    )


def test_a_pair_of_barriers_that_holds_back_and_releases_is_right():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        def load(args):
            if args.local_rank not in [-1, 0] and not args.evaluate:
                torch.distributed.barrier()
            data = torch.load(args.cache)
            if args.local_rank == 0 and not args.evaluate:
                torch.distributed.barrier()
            return data

        def _mp_fn(index, args):
            xm.master_print(load(args))

        if __name__ == "__main__":
            xmp.spawn(_mp_fn, args=(None,))
    """
    assert "XLA405" not in codes(program)


def test_a_save_on_the_master_behind_a_rendezvous_is_right():
    program = """
        import torch_xla
        import torch_xla.core.xla_model as xm

        def save(model, path):
            {first}
            if xm.is_master_ordinal():
                xm.save(model.state_dict(), path)

        def _mp_fn(index, model):
            save(model, "model.pt")

        def main(model):
            torch_xla.launch(_mp_fn, args=(model,))
    """
    assert "XLA405" not in codes(program.format(first='xm.rendezvous("save")'))
    assert "XLA405" in codes(program.format(first='path = path + ".pt"'))
