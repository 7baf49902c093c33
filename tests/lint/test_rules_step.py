"""Reads, shapes and the step protocol, on code as people write it (all programs are invented)."""

from __future__ import annotations

import textwrap

import pytest

from tests.lint.rule_helpers import codes, marked, rows
from xladoctor.lint import engine, fixes
from xladoctor.lint.sources import Source

TRAIN = """
    import math
    import torch
    import torch.nn.functional as F
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl

    def train(model, loader, optimizer, criterion, args, writer):
        device = torch_xla.device()
        model.to(device)
        model.train()
        history = []
        for step, (images, labels) in enumerate(pl.MpDeviceLoader(loader, device)):
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            BODY
        return history
"""


def _with(body):
    lines = body.strip().splitlines()
    return TRAIN.replace("BODY", ("\n" + " " * 12).join(lines))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("history.append(loss.item())", "XLA101"),
        ("history += [x for x in outputs.argmax(1).cpu().numpy()]", "XLA101"),
        ("correct = outputs.max(1)[1].eq(labels).sum().item()", "XLA101"),
        ("host = outputs.detach().to('cpu')", "XLA101"),
        ("host = outputs.to(torch.device('cpu'))", "XLA101"),
        ("history.append(float(loss))", "XLA102"),
        ("history.append(math.sqrt(loss))", "XLA102"),
        ("print('loss', loss)", "XLA103"),
        ("print('loss %.3f' % loss)", "XLA103"),
        ("xm.master_print(f'{loss}')", "XLA103"),
        ("if loss > 5: break", "XLA104"),
        ("assert not torch.isnan(loss).any()", "XLA104"),
        ("worst = max(loss, 3.0)", "XLA104"),
        ("flag = 1 if (outputs > 0).all() else 0", "XLA104"),
        ("kept = outputs[labels > 0]", "XLA202"),
        ("kept = outputs[~(labels == 3)]", "XLA202"),
        ("index = (labels > 0).nonzero()", "XLA201"),
        ("index, = torch.where(labels > 0)", "XLA201"),
        ("order = torch.searchsorted(outputs[0], outputs[1])", "XLA501"),
        ("middle = outputs.median()", "XLA501"),
    ],
)
def test_a_read_in_the_step_loop_is_found_once(body, code):
    assert codes(_with(body)) == [code]
    assert len(rows(_with(body), code)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "history.append(loss.detach())",
        "history.append(images.shape[0]); n = int(labels.size(0)); m = len(images)",
        "print(f'step {step} {images.shape} {images.dtype}')",
        "xm.add_step_closure(lambda l: print(l.item()), args=(loss.detach(),))",
        "if labels is None or isinstance(outputs, tuple): continue",
        "if args.clip and model.training: pass",
        "lr = optimizer.param_groups[0]['lr']; print(f'{lr:.5f}', float(lr))",
        "loss = torch.where(loss > 5, loss * 0.1, loss)",
        "first, rest = outputs[:4], outputs[4:]; row = outputs[0]; picked = outputs[labels]",
        "best = torch.maximum(loss, loss * 2); top = outputs.topk(3)",
        "target = F.one_hot(labels, num_classes=10); n = torch.count_nonzero(labels)",
        "if not torch.is_tensor(loss): raise ValueError(f'bad {loss}')",
        "size = F.interpolate(images, scale_factor=2, mode='nearest')",
        "config = {'a': 1}; value = config['a']; text = 'a {}'.format(step)",
        "assert labels.ndim == 1, f'labels are {labels}'",
    ],
)
def test_what_only_looks_like_a_fault_is_left_alone(body):
    assert codes(_with(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        "if step % 100 == 0:\n    print(loss.item())",
        "if step % args.log_steps == 0:\n    history.append(float(loss))",
        "if (step + 1) % 50 == 0:\n    writer.add_scalar('loss', loss.item(), step)",
    ],
)
def test_a_read_once_in_a_while_is_information(body):
    assert codes(_with(body)) == ["XLA113"]


@pytest.mark.parametrize(
    "body",
    [
        "if args.debug:\n    print(loss.item())",
        "if not use_tpu:\n    print(loss.item())",
        "if not is_torch_xla_available() and torch.isnan(loss): pass",
    ],
)
def test_what_does_not_run_on_xla_or_only_for_debugging_is_left_alone(body):
    assert codes(_with(body)) == []


def test_a_read_after_the_loop_is_right():
    program = """
        import torch
        import torch_xla
        import torch_xla.distributed.parallel_loader as pl

        def train(model, loader, optimizer, criterion):
            device = torch_xla.device()
            model.to(device)
            total = torch.zeros((), device=device)
            for epoch in range(3):
                for images, labels in pl.MpDeviceLoader(loader, device):
                    loss = criterion(model(images), labels)
                    loss.backward()
                    optimizer.step()
                    total += loss.detach()
                print(epoch, total.item(), float(loss))
    """
    assert codes(program) == []


def test_code_without_torch_xla_is_nobodys_business():
    program = """
        import torch

        def train(model, loader, optimizer, criterion, device):
            for images, labels in loader:
                loss = criterion(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                print(loss.item(), images[labels > 0])
    """
    assert codes(program) == []


def test_a_read_in_a_method_that_the_loop_calls_is_found_there():
    program = """
        import torch_xla
        import torch_xla.distributed.parallel_loader as pl

        class Meter:
            def __init__(self):
                self.values = []

            def update(self, value):
                self.values.append(value.item())  # here

        def train(model, loader, optimizer, criterion):
            device = torch_xla.device()
            model.to(device)
            meter = Meter()
            for images, labels in pl.MpDeviceLoader(loader, device):
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                meter.update(loss.detach())
    """
    assert rows(program, "XLA101") == marked(program)


def test_a_model_of_another_file_is_a_model():
    program = """
        import torch_xla
        import torch_xla.distributed.parallel_loader as pl
        from nets import ResNet, build_model

        def train(loader, optimizer, criterion, cfg):
            device = torch_xla.device()
            first = ResNet(cfg).to(device)
            second = build_model(cfg).to(device)
            for images, labels in pl.MpDeviceLoader(loader, device):
                out = first(images) + second(images)
                loss = criterion(out, labels)
                loss.backward()
                optimizer.step()
                print(cfg, first)
                last = out.cpu()  # here
    """
    assert rows(program, "XLA101") == marked(program)
    assert rows(program, "XLA103") == []


@pytest.mark.parametrize(
    "body",
    [
        "xm.optimizer_step(optimizer, barrier=True)",
        "optimizer.step(); xm.mark_step()",
        "optimizer.step(); torch_xla.sync()",
        "xm.optimizer_step(optimizer, barrier=args.barrier)",
        "optimizer.step(); end_of_step()",
    ],
)
def test_a_loop_that_syncs_in_any_way_has_a_boundary(body):
    program = f"""
        import torch_xla
        import torch_xla.core.xla_model as xm
        from torch.utils.data import DataLoader

        def end_of_step():
            torch_xla.sync()

        def train(model, dataset, optimizer, criterion, args):
            device = torch_xla.device()
            model.to(device)
            for images, labels in DataLoader(dataset, batch_size=8, drop_last=True):
                loss = criterion(model(images.to(device)), labels.to(device))
                loss.backward()
                {body}
    """
    assert rows(program, "XLA301") == []


def test_a_loop_over_a_range_on_the_device_needs_a_boundary():
    program = """
        import torch
        import torch_xla

        def train(model, optimizer):
            device = torch_xla.device()
            model.to(device)
            for step in range(1000):
                x = torch.randn(8, 4, device=device)
                loss = model(x).sum()
                loss.backward()
                optimizer.step()  # here
    """
    assert rows(program, "XLA301") == marked(program)


def test_torch_compile_runs_the_step_itself():
    program = """
        import torch
        import torch_xla
        from torch.utils.data import DataLoader

        def train(model, dataset, optimizer, criterion):
            device = torch_xla.device()
            model = torch.compile(model.to(device), backend="openxla")
            for images, labels in DataLoader(dataset, batch_size=8, drop_last=True):
                loss = criterion(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
    """
    assert rows(program, "XLA301") == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [((2, 9), ["XLA801", "XLA802"]), ((2, 6), []), ((2, 7), ["XLA801"])],
)
def test_old_names_follow_the_target_version(target, expected):
    program = """
        import torch_xla.core.xla_model as xm

        def setup():
            return xm.xla_device(), xm.get_ordinal(), xm.get_local_ordinal()
    """
    found = codes(program, target=target)
    # xm.get_ordinal warns from 2.5 to 2.6, which is XLA802 there.
    assert [code for code in found if (target, code) != ((2, 6), "XLA802")] == expected


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("train_loader", "sampler=sampler", True),
        ("train_device_loader", "sampler=sampler", True),
        ("loader", "shuffle=True", True),
        ("valid_loader", "shuffle=True", False),
        ("val_loader", "sampler=sampler", False),
        ("test_dl", "shuffle=True", False),
        ("loader", "sampler=sampler", False),
        ("train_loader", "shuffle=True, drop_last=True", False),
        ("train_loader", "shuffle=True, drop_last=args.drop_last", False),
        ("train_loader", "shuffle=True, **options", False),
    ],
)
def test_a_loader_whose_loop_is_elsewhere_is_judged_by_its_name(name, arguments, expected):
    program = f"""
        import torch_xla
        from torch.utils.data import DataLoader

        def loaders(dataset, sampler, options, args):
            {name} = DataLoader(dataset, batch_size=32, {arguments})
            return {name}
    """
    assert (rows(program, "XLA203") != []) is expected


def test_models_of_transformers_do_not_make_its_trainer_run_the_loop():
    program = """
        import torch_xla.core.xla_model as xm
        from torch.utils.data import DataLoader
        {line}

        def train(model, optimizer, data):
            device = xm.xla_device()
            loader = DataLoader(data, batch_size=8, drop_last=True)
            for batch in loader:
                batch = {{name: part.to(device) for name, part in batch.items()}}  # here
                loss = model(**batch).loss
                loss.backward()
                xm.optimizer_step(optimizer, barrier=True)
    """
    plain = program.format(line="from transformers import AutoModel, AutoTokenizer")
    assert rows(plain, "XLA603") == marked(plain)
    own = program.format(line="from transformers import Trainer")
    assert rows(own, "XLA603") == marked(own)  # a loop of the program's own, whatever it imports


def test_a_step_that_the_trainer_of_transformers_calls_is_left_to_it():
    program = """
        import torch_xla.core.xla_model as xm
        from transformers import Trainer

        class Own(Trainer):
            def training_step(self, model, inputs, count=None):
                inputs = {name: part.to(xm.xla_device()) for name, part in inputs.items()}
                loss = model(**inputs).loss
                loss.backward()
                return loss.detach()
    """
    assert "XLA603" not in codes(program)


@pytest.mark.parametrize(
    ("body", "shown_later"),
    [
        ("print(step, loss.item())\ntorch_xla.sync()", True),
        ("with torch_xla.step():\n    print(step, loss.item())", True),
        ("torch_xla.sync()\nprint(step, loss.item())", False),
        ("if step % 4 == 3:\n    torch_xla.sync()\nprint(step, loss.item())", False),
    ],
)
def test_a_step_closure_is_written_only_before_the_end_that_runs_it(body, shown_later):
    # Behind the loop's last end each line would come one step late, and the last one never.
    text = f"""\
import torch_xla
import torch_xla.core.xla_model as xm


def train(model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = model(x.to(device)).sum()
        loss.backward()
        optimizer.step()
{textwrap.indent(body, " " * 8)}
"""
    done = fixes.fix(text.encode(), "train.py", engine.lint, unsafe=True)
    assert ("add_step_closure" in done.data.decode()) is shown_later


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("8", "nprocs=8 raises"),
        ("CORES", "nprocs=CORES (8) raises"),
        ("args.nprocs", "nprocs=args.nprocs (8) raises"),
    ],
)
def test_the_number_of_processes_is_named_as_the_source_names_it(given, said):
    text = f"""\
import argparse
import torch_xla.distributed.xla_multiprocessing as xmp

CORES = 8
parser = argparse.ArgumentParser()
parser.add_argument("--nprocs", type=int, default=8)
args = parser.parse_args()


def _mp_fn(index):
    pass


xmp.spawn(_mp_fn, nprocs={given})
"""
    problem = next(f for f in engine.lint(Source("x.py", text)).findings if f.code == "XLA404")
    assert problem.message.startswith(said)


@pytest.mark.parametrize(("choice", "expected"), [("args.fp16", 0), ("args.pad_later", 1)])
def test_padding_that_only_16_bit_training_on_gpus_chooses_is_left_alone(choice, expected):
    text = f"""\
import torch_xla
from transformers import DataCollatorWithPadding, Trainer, default_data_collator


def main(args, tokenizer, model, rows):
    collator = default_data_collator
    if {choice}:
        collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
    Trainer(model=model, data_collator=collator, train_dataset=rows).train()
"""
    found = [f for f in engine.lint(Source("x.py", text)).findings if f.code == "XLA209"]
    assert len(found) == expected
