"""What happens around the loop and between cores, in the shapes that public programs have.

All programs are invented; each holds one shape that was once missed, or once a false alarm.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.lint.rule_helpers import codes, found, marked, rows
from xladoctor.lint import engine
from xladoctor.lint.sources import Source

TWO_CORES = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
    return loss


def leave_early(model, loader, optimizer):
    for step, (x, y) in enumerate(loader):
        if step > 100:
            break
        loss = model(x).mean()
        loss.backward()
        xm.optimizer_step(optimizer)


def save(model, path):
    if xm.is_master_ordinal():
        xm.save(model.state_dict(), path)  # saved


def worker(index, dataset):
    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=False)
    loader = torch.utils.data.DataLoader(dataset, 4, sampler=sampler, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    for epoch in range(3):
        BODY


if __name__ == "__main__":
    xmp.spawn(worker, args=([],))
"""


def _two_cores(body):
    lines = textwrap.dedent(body).strip().splitlines()
    return TWO_CORES.replace("BODY", ("\n" + " " * 8).join(lines))


@pytest.mark.parametrize(
    "body",
    [
        "train(model, batches, optimizer)\nsave(model, 'a.pt')",
        "for x, y in batches: xm.optimizer_step(optimizer)\nif index == 0: xm.save(model, 'a')",
        "leave_early(model, batches, optimizer)\nxm.mark_step()\nsave(model, 'a.pt')",
    ],
)
def test_nobody_hangs_in_a_save_behind_the_end_of_a_graph(body):
    assert "XLA405" not in codes(_two_cores(body))


@pytest.mark.parametrize("met", ["pass", "xm.rendezvous('a')"])
def test_a_save_that_each_core_decides_on_is_found_all_the_same(met):
    decided = "if loss.item() < 1: xm.save(model, 'a')"
    body = f"loss = train(model, batches, optimizer)\n{met}\n{decided}"
    assert "XLA405" in codes(_two_cores(body))


@pytest.mark.parametrize(
    "body",
    [
        "leave_early(model, batches, optimizer)\nsave(model, 'a.pt')",
        "for x, y in batches:\n    xm.optimizer_step(optimizer)\n    save(model, 'a.pt')",
        "train(model, batches, optimizer)\nxm.reduce_gradients(optimizer)\nsave(model, 'a.pt')",
        "train(model, loader, optimizer)\nsave(model, 'a.pt')",
    ],
)
def test_a_save_of_one_core_with_a_collective_pending_is_found(body):
    program = _two_cores(body)
    assert rows(program, "XLA405") == marked(program, "# saved")


def test_a_model_is_told_once_and_not_its_parts():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.Sequential(Block(), Block())

        def worker(index, loader):
            model = Net().to(xm.xla_device())  # here
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                model(x).mean().backward()
                xm.optimizer_step(optimizer, barrier=True)

        xmp.spawn(worker, args=([],))
    """
    assert rows(program, "XLA426") == marked(program)


@pytest.mark.parametrize(
    ("lines", "use"),
    [
        ('xm = importlib.import_module("torch_xla.core.xla_model")', "xm.get_ordinal()"),
        ('xm = import_module("torch_xla.core.xla_model")', "xm.get_ordinal()"),
        ("import torch_xla.core.xla_model as xm", "Trainer().xm.xla_device()"),
    ],
)
def test_a_module_is_known_however_it_is_imported(lines, use):
    program = f"import importlib\nfrom importlib import import_module\n{lines}\n{use}\n"
    kept = "class Trainer:\n    def __init__(self):\n        self.xm = None\n"
    kept += "        self.xm = xm\n    def number(self):\n        return self.xm.get_ordinal()\n"
    assert "XLA801" in codes(program + kept)


def test_an_attribute_that_holds_different_modules_is_no_module():
    program = """
        import torch_xla.core.xla_model as xm
        import mine

        class Trainer:
            def __init__(self, other):
                self.xm = xm
                if other:
                    self.xm = mine

            def number(self):
                return self.xm.get_ordinal()
    """
    assert "XLA801" not in codes(program)


def test_private_functions_are_named_by_their_private_part():
    program = "import torch_xla.core.xla_model as xm\nxm._maybe_convert_to_cpu([])\n"
    assert found(program) == [(2, "XLA804")]
    assert codes("import torch_xla\nprint(torch_xla.__version__.split('.'))\n") == []


OF_2019 = """
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def train(model, loader, device, context):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        total = 0
        for step, (x, y) in loader:
            optimizer.zero_grad()
            loss = model(x).mean()
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.item()  # here
            if step % 2 == 0:
                print(step)
        return total

    def evaluate(model, loader, device, context):
        model.eval()
        for x, (images, y) in enumerate(loader):
            right = model(images).argmax(1).eq(y).sum().item()  # here
            if x == 3:
                print(right)

    devices = xm.get_xla_supported_devices()
    parallel = dp.DataParallel(torch.nn.Linear(4, 4), device_ids=devices)
    data = torch.utils.data.DataLoader([], 4, drop_last=True)
    parallel(train, data)
    parallel(evaluate, data)
"""


def test_the_loops_of_data_parallel_are_followed_and_its_counters_are_numbers():
    assert rows(OF_2019, "XLA101") == marked(OF_2019)
    assert not set(codes(OF_2019)) & {"XLA104", "XLA301", "XLA603"}


def test_a_counter_of_a_device_loader_is_no_tensor():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        device = xm.xla_device()
        model = torch.nn.Linear(4, 4).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, batch in pl.MpDeviceLoader(my_counting_loader(), device):
            model(batch).mean().backward()
            xm.optimizer_step(optimizer)
            if step % 100 == 0:
                print(step)
    """
    assert "XLA104" not in codes(program)


def test_an_optimizer_of_another_library_is_known_by_what_it_is_given():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        from lion_pytorch import Lion

        device = xm.xla_device()
        model = torch.nn.Linear(4, 4).to(device)
        opt = Lion(model.parameters(), lr=1e-4)
        loader = torch.utils.data.DataLoader([], 4, drop_last=True)
        for x, y in loader:
            loss = model(x.to(device)).mean()
            loss.backward()
            opt.step()  # here
    """
    assert rows(program, "XLA301") == marked(program)


READ_SOMETIMES = """
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl

    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = pl.MpDeviceLoader(torch.utils.data.DataLoader([], 4, drop_last=True), device)
    for epoch in range(10):
        for i, (x, y) in enumerate(batches):
            loss = model(x).mean()
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            if TEST:
                print(loss.item())  # here
"""


@pytest.mark.parametrize(
    "test",
    [
        "i * 8 % 1000 > (i + 1) * 8 % 1000",
        "i * 8 % 1000 > (i + 1) * 8 % 1000 or i + 1 == len(batches)",
        "i * 8 % 100 < 8",
        "i == len(batches) - 1",
        "epoch % 2 == 0 and i == 0",
    ],
)
def test_a_read_once_in_a_while_is_not_one_on_every_step(test):
    assert rows(READ_SOMETIMES.replace("TEST", test), "XLA101") == []


@pytest.mark.parametrize("test", ["epoch % 2 == 0", "i % 100 > 0", "i % 2 + 1", "epoch == 3"])
def test_a_read_on_every_step_of_some_epochs_is_one(test):
    program = READ_SOMETIMES.replace("TEST", test)
    assert rows(program, "XLA101") == marked(program)


def test_cores_that_meet_for_every_evaluation_batch():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def evaluate(model, loader, device):
            model.eval()
            with torch.no_grad():
                for x, y in pl.MpDeviceLoader(loader, device):
                    loss = model(x).mean()
                    mean = xm.mesh_reduce("loss", loss, sum)  # here
            return xm.mesh_reduce("all", mean, sum)
    """
    assert rows(program, "XLA423") == marked(program)


def test_the_modules_are_known_by_their_names_where_they_are_handed_on():
    program = """
        import torch

        def load():
            import torch_xla.core.xla_model as xm
            import torch_xla.distributed.xla_multiprocessing as xmp
            return xm, xmp

        def report(xm, loss):
            return xm.all_reduce("sum", loss).item(), xm.get_ordinal()  # here

        def main(worker):
            xm, xmp = load()
            xmp.spawn(worker, nprocs=8)  # here
    """
    assert [row for row, code in found(program) if code in {"XLA801", "XLA404"}] == marked(program)
    other = "def report(xm):\n    return xm.get_ordinal()\n"
    assert codes(other) == []


@pytest.mark.parametrize(
    "name", ["master", "is_master", "is_main_process", "rank == 0", "ordinal == 0"]
)
def test_what_the_master_prints_is_no_output_of_every_core(name):
    program = f"""
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp
        import helpers

        def worker(index):
            rank, master = helpers.rank(), helpers.is_master()
            ordinal = is_master = is_main_process = helpers.whatever()
            if {name}:
                print("start")

        xmp.spawn(worker)
    """
    assert "XLA401" not in codes(program)


def test_nothing_is_written_to_the_null_device():
    program = """
        import os
        import torch_xla.distributed.xla_multiprocessing as xmp

        def worker(index):
            quiet = open(os.devnull, "w")
            other = open("/dev/null", "w")

        if __name__ == "__main__":
            xmp.spawn(worker)
    """
    assert codes(program) == []


def test_an_epoch_that_ends_with_a_step_of_its_own_is_no_step_loop():
    program = """
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        device = xm.xla_device()
        model = torch.nn.Linear(4, 4).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = pl.MpDeviceLoader(torch.utils.data.DataLoader([], 4, drop_last=True), device)
        for epoch in range(10):
            for i, (x, y) in enumerate(batches):
                loss = model(x).mean()
                loss.backward()
                if i % 4 == 3:
                    xm.optimizer_step(optimizer)
            xm.optimizer_step(optimizer)
            optimizer.zero_grad()
            torch_xla.sync()
            print(loss.item())
            xm.rendezvous("epoch")
    """
    assert codes(program) == ["XLA802"]


def test_cores_that_meet_for_every_batch_whatever_is_done_with_it():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        from steps import make_step

        def run(loader, device, steps):
            step = make_step()
            while steps < 1000:
                for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
                    steps += 1
                    xm.rendezvous("batch")  # here
                    step(x, y)
                    if steps % 100 == 0:
                        xm.rendezvous("now and then")
    """
    assert rows(program, "XLA423") == marked(program)


SEEDED = """
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_multiprocessing as xmp
    from models import build_model

    def worker(index, config, loader):
        device = xm.xla_device()
        SEED
        model = build_model(config).to(device)  # here
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            model(x).mean().backward()
            xm.optimizer_step(optimizer, barrier=True)

    xmp.spawn(worker, args=(None, None))
"""


@pytest.mark.parametrize("seed", ["torch.manual_seed(42 + index)", "torch.manual_seed(index)"])
def test_a_seed_of_each_core_draws_different_weights(seed):
    program = SEEDED.replace("SEED", seed)
    assert rows(program, "XLA426") == marked(program)


@pytest.mark.parametrize(
    "made",
    [
        "Net(64, norm='batch', backbone_type='none')",
        "model_cls(config)",
        "head_cls(model_cls(config), **config.loss)",
    ],
)
def test_a_class_from_elsewhere_draws_weights_whatever_says_how_it_is_built(made):
    classes = "model_cls, head_cls = find_class(config.net), find_class(config.head)"
    program = SEEDED.replace("import build_model", "import Net, find_class")
    program = program.replace("SEED", classes).replace(
        "build_model(config).to", f"{made}\n        model = model.to"
    )
    assert rows(program, "XLA426") == marked(program)


@pytest.mark.parametrize("made", ["Net('base')", "Net(backbone='resnet50')", "Net(64, name='b16')"])
def test_a_class_from_elsewhere_may_read_the_weights_that_a_text_names(made):
    program = SEEDED.replace("import build_model", "import Net").replace("SEED", "pass")
    assert rows(program.replace("build_model(config)", made), "XLA426") == []


RESUMED = """
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_multiprocessing as xmp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

    def worker(index, how, path, loader):
        torch.manual_seed(42 + index)
        if how == "scratch":
            model = Net()  # here
        elif how == "resume":
            model = Net()
            state = torch.load(path, map_location="cpu")
            GUARDmodel.load_state_dict(state)
        model.to(xm.xla_device())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            model(x).mean().backward()
            xm.optimizer_step(optimizer, barrier=True)

    xmp.spawn(worker, args=(None, None, None))
"""


def test_a_model_that_gets_its_weights_where_it_is_made_draws_none():
    program = RESUMED.replace("GUARD", "")
    assert rows(program, "XLA426") == marked(program)
    sometimes = RESUMED.replace("GUARD", "if path: ")
    assert len(rows(sometimes, "XLA426")) == 2


@pytest.mark.parametrize("seed", ["torch.manual_seed(42)", "pass", "set_seed(config.seed)"])
def test_without_one_a_model_from_elsewhere_may_be_equal_on_all_cores(seed):
    assert rows(SEEDED.replace("SEED", seed), "XLA426") == []


def test_gradients_that_are_clipped_on_gpus_alone():
    program = """
        import torch
        import torch_xla.core.xla_model as xm

        def step(model, optimizer, accelerator):
            if accelerator == "GPU":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            if accelerator == "TPU":
                xm.optimizer_step(optimizer)
    """
    assert codes(program) == []


def test_the_names_of_parameters_are_no_tensors():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def train(kinds, loader, device, shown):
            model = kinds["a"].from_pretrained("b").to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, x in enumerate(pl.MpDeviceLoader(loader, device)):
                loss = model(x)[0]
                loss.backward()
                xm.optimizer_step(optimizer, barrier=True)
                if i % 100 == 0:
                    for name, parameter in model.named_parameters():
                        shown[f"gradients/{name}"] = parameter.grad.cpu()
    """
    assert not set(codes(program)) & {"XLA101", "XLA103"}


@pytest.mark.parametrize(
    ("lines", "twice"),
    [
        ("opt.step()\nxm.optimizer_step(opt)", True),
        ("xm.optimizer_step(opt, barrier=True)\nscheduler.step()\nopt.step()", True),
        ("opt.step()\nopt.zero_grad()\nxm.optimizer_step(opt)", False),
        ("optimizer_g.step()\nxm.optimizer_step(opt)", False),
        ("if tpu: xm.optimizer_step(opt)\nelse: opt.step()", False),
        ("xm.reduce_gradients(opt)\nopt.step()", False),
    ],
)
def test_an_optimizer_that_steps_twice(lines, twice):
    body = lines.replace("\n", "\n    ")
    program = "import torch_xla.core.xla_model as xm\n\n\n"
    program += (
        f"def step(loss, opt, optimizer_g, scheduler, tpu):\n    loss.backward()\n    {body}\n"
    )
    assert ("XLA302" in codes(program)) is twice


LOADED = """
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl
    import torch_xla.distributed.xla_multiprocessing as xmp

    def worker(index, path, loader):
        device = xm.xla_device()
        model = torch.nn.Linear(4, 4).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if xm.is_master_ordinal():
            saved = torch.load(path, map_location="cpu")
            model.load_state_dict(saved["model"])  # here
            optimizer.load_state_dict(saved["optimizer"])  # here
        BETWEEN
        for x, y in pl.MpDeviceLoader(loader, device):
            model(x).mean().backward()
            xm.optimizer_step(optimizer)
        if xm.is_master_ordinal():
            model.load_state_dict(torch.load(path, map_location="cpu"))
            test(model)

    xmp.spawn(worker, args=(None, None))
"""


def test_weights_that_the_master_alone_loads_before_the_training():
    program = LOADED.replace("BETWEEN", "xm.rendezvous('loaded')")
    assert rows(program, "XLA426") == marked(program)


def test_and_sends_to_the_others():
    assert rows(LOADED.replace("BETWEEN", "model = sync_module(model)"), "XLA426") == []


def test_and_sends_the_weights_alone():
    """The optimizer's state stays on the master."""
    program = LOADED.replace("BETWEEN", "xm.broadcast_master_param(model)")
    program = program.replace('["model"])  # here', '["model"])')
    assert rows(program, "XLA426") == marked(program)


def test_training_under_a_handler_is_not_ready_for_a_missing_name():
    program = """
        import torch_xla.core.xla_model as xm

        def train(batches, step):
            try:
                for batch in batches:
                    step(batch, xm.get_ordinal())  # here
            except Exception as error:
                print(error)

        def rank():
            try:
                return xm.get_ordinal()
            except (AttributeError, ImportError):
                return 0
    """
    assert rows(program, "XLA801") == marked(program)


@pytest.mark.parametrize(
    "line",
    [
        "import torch_xla.launch",
        "import torch_xla.launch as launcher",
        "from torch_xla.launch import launch",
        "from torch_xla.core.xla_model.optimizer_step import optimizer_step",
    ],
)
def test_a_function_is_no_module_to_import_from(line):
    assert rows(line + "\n", "XLA801") == [1]


@pytest.mark.parametrize(
    "line",
    [
        "from torch_xla import launch",
        "import torch_xla.version",
        "from torch_xla.version import __version__",
        "import torch_xla.test.test_utils as test_utils",
        "import torch_xla.utils.serialization as xser",
    ],
)
def test_modules_are_imported(line):
    assert rows(line + "\n", "XLA801") == []


def test_a_fix_does_not_write_a_name_that_another_branch_imports():
    program = """
        import torch_xla.distributed.xla_multiprocessing as xmp

        def worker(index, accelerator):
            if accelerator == "TPU":
                import torch_xla.core.xla_model as xm
                print("start")  # here
            print("both")

        xmp.spawn(worker, args=("TPU",))
    """
    text = textwrap.dedent(program)
    findings = engine.lint(Source("train.py", text), engine.LintOptions()).findings
    fixed = {item.locations[0].row for item in findings if item.code == "XLA401" and item.fix}
    assert fixed == set(marked(program))


def test_a_meeting_under_the_same_condition_as_the_save_ends_the_graph_too():
    program = _two_cores(
        """
        for step, (x, y) in enumerate(batches):
            model(x).mean().backward()
            xm.optimizer_step(optimizer)
            if step % 100 == 0:
                xm.rendezvous("save")
                if xm.is_master_ordinal():
                    save(model, "a.pt")
        """
    )
    assert "XLA405" not in codes(program)


def test_weights_that_a_helper_of_the_master_alone_loads():
    program = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        import torch_xla.distributed.xla_multiprocessing as xmp

        def resume(path, model):
            saved = torch.load(path, map_location="cpu")
            model.load_state_dict(saved["model"])
            return saved["step"]

        def worker(index, path, loader):
            device = xm.xla_device()
            model = torch.nn.Linear(4, 4).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            step = 0
            if xm.is_master_ordinal():
                step = resume(path, model)  # here
            step = int(xm.all_reduce(xm.REDUCE_SUM, torch.tensor(step, device=device)).item())
            for epoch in range(3):
                for x, y in pl.MpDeviceLoader(loader, device):
                    model(x).mean().backward()
                    xm.optimizer_step(optimizer)

        xmp.spawn(worker, args=(None, None))
    """
    assert rows(program, "XLA426") == marked(program)


@pytest.mark.parametrize("name", ["loader", "batches"])
@pytest.mark.parametrize(("epochs", "told"), [(3, True), (1, False)])
def test_an_iterator_for_one_epoch_that_took_the_name_of_its_loader(name, epochs, told):
    program = f"""
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def train(model, optimizer, dataset, device):
            loader = torch.utils.data.DataLoader(dataset, 4, drop_last=True)
            {name} = pl.ParallelLoader(loader, [device]).per_device_loader(device)  # here
            epochs = {epochs}
            for epoch in range(epochs):
                for x, y in {name}:
                    model(x).mean().backward()
                    xm.optimizer_step(optimizer)
    """
    assert rows(program, "XLA415") == (marked(program) if told else [])


def test_an_iterator_that_is_made_anew_is_none():
    program = """
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def train(model, optimizer, loader, device):
            batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
            shape = next(iter(batches))[0].shape
            for epoch in range(3):
                batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
                for x, y in batches:
                    model(x).mean().backward()
                    xm.optimizer_step(optimizer)
    """
    assert rows(program, "XLA415") == []


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        ("xm.all_reduce(xm.REDUCE_SUM, layer.running_mean, scale=0.5)", True),
        ("xm.all_reduce('sum', layer.weight.grad)", True),
        ("xm.all_reduce('sum', [layer.weight.grad])", False),
        ("xm.all_reduce('sum', layer.tensors)", False),
        ("mean = xm.all_reduce('sum', layer.running_mean)", False),
    ],
)
def test_a_reduction_of_a_layer_s_tensor_that_is_dropped(line, dropped):
    program = "import torch_xla.core.xla_model as xm\n\n\n"
    program += f"def reduce(model):\n    for layer in model.modules():\n        {line}\n"
    assert ("XLA308" in codes(program)) is dropped


def test_cores_that_meet_in_every_step_on_tpu():
    program = """
        import torch_xla.core.xla_model as xm

        class Engine:
            def train(self, loader):
                for x in loader:
                    loss = self.model(x)
                    loss.backward()
                    if self.use_tpu:
                        xm.optimizer_step(self.optimizer)
                        mean = xm.mesh_reduce("loss", loss, max)  # here
                    if self.verbose:
                        xm.mesh_reduce("loss", loss, max)
    """
    assert rows(program, "XLA423") == marked(program)
