"""Files that import each other are understood together."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from xladoctor.lint import linking, run
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.model import parsing

#: The programs move their batches by hand (XLA603): here only what crosses files is of interest.
CODES = run.chosen_codes(("XLA",), (), ("XLA603",))
PLAN = run.Plan(LintOptions(codes=CODES))

TRAIN = """
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    from torch.utils.data import DataLoader
    from pkg.steps import train_epoch

    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader([], batch_size=4, drop_last=True)
    for epoch in range(3):
        train_epoch(model, loader, optimizer, torch.nn.CrossEntropyLoss(), device)
"""
STEPS = """
    from pkg.tools import accuracy, finish

    def train_epoch(model, loader, optimizer, loss_fn, device):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss_fn(out, y).backward()
            finish(optimizer)
            accuracy(out, y)
"""
TOOLS = """
    import torch_xla

    def finish(optimizer):
        optimizer.step()
        torch_xla.sync()

    def accuracy(output, target):
        return (output.argmax(1) == target).float().mean().item()

    def size(tensor):
        return tensor.item()
"""


@pytest.fixture
def lint(tmp_path, monkeypatch):
    """Write files into a project and lint them: (file, row, code) of what is found."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()

    def lint(given=None, **files):
        for name, text in files.items():
            path = Path(name.replace("__", "/").replace("INIT", "__init__") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        paths = given or sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py"))
        found = []
        for result in run.lint_files([Path(path) for path in paths], PLAN):
            assert result.result.failures == ()
            found += [
                (item.locations[0].filename, item.locations[0].row, item.code)
                for item in result.result.findings
                if not item.code.startswith("XLA8")
            ]
        return found

    return lint


def test_a_helper_that_reads_what_another_file_put_on_the_device(lint):
    found = lint(train=TRAIN, pkg__steps=STEPS, pkg__tools=TOOLS)
    assert found == [("pkg/tools.py", 9, "XLA101")]


def test_a_clock_around_what_another_file_does(lint):
    meter = """\
        class Meter:
            def __init__(self):
                self.seen = make_store()

            def keep(self, value):
                self.seen.put(value)
        """
    train = """\
        import time

        import torch_xla
        from meter import Meter

        meter = Meter()
        began = time.time()
        for x in rows:
            torch_xla.sync()
            last = time.time()
            meter.keep(last)
        print(time.time() - began)
        """
    assert lint(train=train, meter=meter) == [("train.py", 12, "XLA112")]


def test_what_was_not_given_is_read_but_not_reported(lint):
    # pkg/tools.py ends the graph, so the loop of pkg/steps.py lacks nothing.
    assert lint(given=["train.py"], train=TRAIN, pkg__steps=STEPS, pkg__tools=TOOLS) == []


def test_a_loop_without_a_boundary_in_any_file(lint):
    tools = TOOLS.replace("        torch_xla.sync()\n", "")
    found = lint(train=TRAIN, pkg__steps=STEPS, pkg__tools=tools)
    assert ("pkg/steps.py", 5, "XLA301") in found


def test_related_places_name_their_file(lint):
    lint(train=TRAIN, pkg__steps=STEPS, pkg__tools=TOOLS)
    paths = [Path("train.py"), Path("pkg/steps.py"), Path("pkg/tools.py")]
    [finding] = [
        finding
        for result in run.lint_files(paths, PLAN)
        for finding in result.result.findings
        if finding.code == "XLA101"
    ]
    assert [(place.filename, place.row) for place in finding.related] == [
        ("pkg/steps.py", 5),
        ("pkg/steps.py", 6),
    ]


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from pkg import tools", "tools.accuracy"),
        ("import pkg.tools", "pkg.tools.accuracy"),
        ("import pkg.tools as t", "t.accuracy"),
        ("from pkg.tools import accuracy as acc", "acc"),
        ("from pkg.tools import *", "accuracy"),
        ("from pkg.again import accuracy", "accuracy"),
        ("from . import tools", "tools.accuracy"),
        ("from . import tools as t", "t.accuracy"),
        ("from . import accuracy", "accuracy"),
        ("from .tools import accuracy", "accuracy"),
        ("from .sub import accuracy", "accuracy"),
        ("from pkg.sub.deep import tools", "tools.accuracy"),
        ("from .sub import again", "again.accuracy"),
        ("import pkg", "pkg.accuracy"),
        ("import pkg.again as a", "a.accuracy"),
        ("from pkg import sub", "sub.accuracy"),
    ],
)
def test_every_way_to_import(lint, imports, call):
    steps = STEPS.replace("accuracy, finish", "finish").replace("accuracy(", f"{call}(")
    steps = f"    {imports}\n" + steps
    again = "from .tools import accuracy\n"
    found = lint(
        train=TRAIN,
        pkg__steps=steps,
        pkg__tools=TOOLS,
        pkg__again=again,
        pkg__INIT="from .again import accuracy\n",
        pkg__sub__INIT="from .. import accuracy\nfrom .. import again\n",
        pkg__sub__deep="from .. import tools\n",
    )
    assert found == [("pkg/tools.py", 9, "XLA101")]


def test_names_of_another_package_are_not_linked(lint):
    # Here "tools" is not pkg/tools.py: a file inside a package imports by the package's name.
    steps = STEPS.replace("from pkg.tools", "from tools")
    assert lint(train=TRAIN, pkg__INIT="", pkg__steps=steps, pkg__tools=TOOLS) == []


def test_more_dots_than_folders_are_nobody(lint):
    assert lint(one="import torch_xla\nfrom ........... import x\nfrom .. import y\nx(y)\n") == []


def test_what_is_typed_just_now_is_linked_with_what_it_imports(lint):
    lint(train="", pkg__tools=TOOLS)
    # As an editor sends it: the file of that name holds something older.
    text = textwrap.dedent(TRAIN).replace("from pkg.steps import train_epoch", "")
    text = textwrap.dedent(STEPS) + text
    result = run.lint_text(text.encode(), "train.py", PLAN)
    # The loop is here, and the other file is not asked for: what it reads is told at its call.
    assert [item.code for item in result.result.findings] == ["XLA101", "XLA802"]
    broken = textwrap.dedent(TOOLS).replace("    torch_xla.sync()\n", "")
    Path("pkg/tools.py").write_text(broken)
    result = run.lint_text(text.encode(), "train.py", PLAN)
    assert "XLA301" in {item.code for item in result.result.findings}


def test_classes_and_objects_of_other_files(lint):
    meters = """
        class Meter:
            def __init__(self):
                self.total = 0.0

            def update(self, value):
                self.total += value.item()
    """
    shared = """
        from pkg.meters import Meter

        meter, times = Meter(), Meter()
    """
    steps = "    from pkg.shared import meter, times\n" + STEPS.replace(
        "accuracy(out, y)", "meter.update(out.sum())"
    )
    found = lint(
        train=TRAIN, pkg__steps=steps, pkg__tools=TOOLS, pkg__meters=meters, pkg__shared=shared
    )
    assert found == [("pkg/meters.py", 7, "XLA101")]


def test_library_names_through_a_module_of_the_project(lint):
    compat = "import torch_xla.core.xla_model as xm\nsync = xm.mark_step\n"
    tools = TOOLS.replace("import torch_xla\n", "from pkg.compat import sync\n")
    tools = tools.replace("torch_xla.sync()", "sync()")
    found = lint(train=TRAIN, pkg__steps=STEPS, pkg__tools=tools, pkg__compat=compat)
    assert found == [("pkg/tools.py", 9, "XLA101")]


def test_cores_that_start_in_another_file(lint):
    main = """
        import torch_xla.distributed.xla_multiprocessing as xmp
        from worker import run

        if __name__ == "__main__":
            xmp.spawn(run, args=())
    """
    worker = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        def run(index):
            device = xm.xla_device()
            model = torch.nn.Linear(4, 4).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in pl.MpDeviceLoader([], device):
                optimizer.zero_grad()
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
    """
    assert lint(worker=worker) == []
    found = [("worker.py", 8, "XLA426"), ("worker.py", 14, "XLA302")]
    assert lint(main=main, worker=worker) == found


def test_circles_end(lint):
    one = "import torch_xla\nimport two\nfrom two import f\ndef g(x):\n    return f(x)\ng(1)\n"
    two = "import one\nfrom one import g\ndef f(x):\n    return g(x)\nx = g\n"
    assert lint(one=one, two=two) == []


def test_a_file_that_does_not_parse_drops_out(lint):
    found = lint(train=TRAIN, pkg__steps=STEPS, pkg__tools="def broken(:\n")
    assert ("pkg/tools.py", 1, "XLA001") in found
    assert not [item for item in found if item[2] not in {"XLA001", "XLA301"}]


def test_fixes_of_linked_files_keep_the_others_in_mind(lint, tmp_path):
    lint(train=TRAIN, pkg__steps=STEPS, pkg__tools=TOOLS)
    plan = run.Plan(LintOptions(), fix="unsafe")
    paths = [Path("train.py"), Path("pkg/steps.py"), Path("pkg/tools.py")]
    results = {item.filename: item for item in run.lint_files(paths, plan)}
    assert b"torch_xla.device()" in results["train.py"].fixed
    assert results["pkg/steps.py"].fixed is None


def test_groups_are_bounded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    names = [f"part{number}.py" for number in range(150)]
    for number, name in enumerate(names):
        Path(name).write_text(f"import torch_xla\nimport part{(number + 1) % 150}\n")
    found = linking.groups(names)
    assert max(len(group.names) for group in found) <= 100
    assert sorted(name for group in found for name in group.given) == sorted(names)


@pytest.mark.parametrize("taken", [False, True])
def test_a_script_beside_its_twin_for_tpus_is_for_other_devices(tmp_path, monkeypatch, taken):
    """Unless the twin itself imports it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    texts = {
        "saving.py": "import torch_xla\n",
        "train.py": "import saving\n",
        "run.py": "import train\n",
        "train_tpu_multi.py": f"import torch_xla\nimport saving\n{'import train' * taken}\n",
        "evaluate.py": "import saving\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    alone = [group.names for group in linking.groups(list(texts)) if len(group.names) == 1]
    assert (("train.py",) in alone) is not taken
    assert ("evaluate.py",) not in alone


def test_a_helper_of_one_file_is_linked_before_what_all_import(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    # "hub" brings the sixty files together until no more fit: each keeps its own "tool" first.
    Path("hub.py").write_text("LINES = 1\n")
    for number in range(60):
        Path(f"part{number}.py").write_text(f"import torch_xla\nimport hub\nimport tool{number}\n")
        Path(f"tool{number}.py").write_text("LINES = 1\n")
    found = linking.groups(sorted(path.name for path in tmp_path.glob("*.py")))
    for number in range(60):
        group = next(group for group in found if f"part{number}.py" in group.names)
        assert f"tool{number}.py" in group.names


def test_a_program_is_linked_with_what_it_imports_beside_its_device(lint):
    """``main`` takes the device from one file, and its optimizer from another without XLA."""
    found = lint(
        device="""
            import torch_xla.core.xla_model as xm

            def get_device():
                return xm.xla_device()
        """,
        optim="""
            import torch

            def make(model):
                return torch.optim.AdamW([{"params": list(model.parameters())}], lr=0.1)
        """,
        fit="""
            def fit(model, optimizer, loader, device):
                model = model.to(device)
                for x in loader:
                    model(x.to(device)).sum().backward()
                    optimizer.step()
        """,
        main="""
            import torch
            import fit
            import optim
            from device import get_device

            def main(loader):
                model = torch.nn.Linear(4, 4)
                optimizer = optim.make(model)
                fit.fit(model, optimizer, loader, get_device())
        """,
    )
    assert ("main.py", 9, "XLA305") in found


def test_files_without_xla_stay_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.py").write_text("import two\n")
    Path("two.py").write_text("x = 1\n")
    assert [group.names for group in linking.groups(["one.py", "two.py"])] == [
        ("one.py",),
        ("two.py",),
    ]


def test_packages_that_the_library_answers_are_not_modelled(lint):
    """In torch_xla's own tree a program's torch_xla is the one that the tables know."""
    program = """
        import torch_xla
        import torch_xla.core.xla_model as xm

        xm.rendezvous("start")
        t = xm.xla_device()
    """
    files = {"train": program, "torch_xla__INIT": "", "torch_xla__core__INIT": ""}
    own = "def xla_device():\n    return None\n\ndef rendezvous(tag):\n    return tag\n"
    assert lint(**files, torch_xla__core__xla_model=own) == lint(train=program)
    groups = linking.groups(["train.py"])
    assert [group.names for group in groups] == [("train.py",)]


@pytest.mark.parametrize("shown", ["", "            self.board.show(loss)\n"])
def test_a_time_is_taken_around_a_step_in_another_file(lint, shown):
    """Lines of other files say nothing of what comes first."""
    base = """
        import torch_xla

        class Trainer:
            def run_step(self):
                self.board.flush(self.optimizer)
                self.optimizer.step()
                torch_xla.sync()
    """
    train = """
        import time
        import torch_xla
        from base import Trainer

        class Timed(Trainer):
            def train(self, loader):
                begun = time.time()
                loss = self.model(loader)
                self.run_step()
        SHOWN
                print(time.time() - begun)
    """
    train = textwrap.dedent(train).replace("SHOWN\n", shown)
    found = lint(base=base, train=train)
    assert [place for place in found if place[2] == "XLA112"] == (
        [] if shown else [("train.py", 11, "XLA112")]
    )


def test_a_sharded_loader_of_another_file_makes_a_metric_that_of_one_shard(lint):
    loaders = """
        import torch_xla.runtime as xr
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler

        def shares(data):
            sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal())
            return DataLoader(data, 8, sampler=sampler, drop_last=True)
    """
    evaluate = """
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        from pkg.loaders import shares

        def main(index, model, data):
            device = torch_xla.device()
            model.to(device).eval()
            right, seen = 0, 0
            with torch.no_grad():
                for x, y in pl.MpDeviceLoader(shares(data), device):
                    right += (model(x).argmax(1) == y).sum()
                    seen += len(y)
            accuracy = right.item() / seen
            xm.master_print(accuracy)

        if __name__ == "__main__":
            torch_xla.launch(main, args=(torch.nn.Linear(4, 4), []))
    """
    found = lint(pkg__loaders=loaders, evaluate=evaluate)
    assert ("evaluate.py", 17, "XLA427") in found


def test_a_script_that_stands_in_a_package_imports_what_stands_beside_it(lint):
    helper = """
        def step(model, batch):
            loss = model(batch).mean()
            print(loss.item())
            return loss
    """
    script = """
        import torch_xla.distributed.parallel_loader as pl
        from HELPER import step

        def train(model, loader, optimizer, device):
            model.to(device)
            for batch in pl.MpDeviceLoader(loader, device):
                step(model, batch).backward()
                optimizer.step()

        if __name__ == "__main__":
            train(*parsed())
    """
    assert ("steps.py", 4, "XLA101") in lint(
        INIT="", run=script.replace("HELPER", "steps"), steps=helper
    )
    inner = script.replace("HELPER", "pkg.steps")
    assert ("pkg/steps.py", 4, "XLA101") in lint(
        INIT="", run=inner, pkg__INIT="", pkg__steps=helper
    )


def test_only_the_file_that_changed_is_parsed_again(tmp_path, monkeypatch):
    """In an editor, and between the rounds of fixes; equal files have nodes of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "pkg").mkdir()
    Path("pkg/__init__.py").write_text("")
    for name, text in (("steps", STEPS), ("tools", TOOLS), ("again", TOOLS)):
        Path(f"pkg/{name}.py").write_text(textwrap.dedent(text))
    train = textwrap.dedent(TRAIN) + "import pkg.again\n"
    parsing.parsed.cache_clear()
    parsed = []
    real = parsing.converted
    monkeypatch.setattr(
        parsing, "converted", lambda text, tree: parsed.append(text) or real(text, tree)
    )
    found = []
    for number in range(3):
        data = f"{train}# {number}\n".encode()
        found.append(run.lint_text(data, "train.py", PLAN).result)
        assert len(parsed) == 4 + number
    assert found[0] == found[1] == found[2]
    assert found[0].failures == ()


def test_a_count_that_comes_round_is_known_among_linked_files(lint):
    now_and_then = """
            if (i * 8) % 1000 > ((i + 1) * 8) % 1000:
                print(float(accuracy(out, y)))
    """.rstrip()
    steps = STEPS.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)").rstrip()
    steps = steps.replace("            accuracy(out, y)", now_and_then.lstrip("\n"))
    assert "i * 8" in steps
    tools = TOOLS.replace(".mean().item()", ".mean()")
    assert not lint(train=TRAIN, pkg__steps=steps, pkg__tools=tools)


def test_padding_in_a_collate_function_of_another_file(lint):
    train = """
        import torch_xla.core.xla_model as xm
        from torch.utils.data import DataLoader
        from batches import collate

        device = xm.xla_device()
        loader = DataLoader(DATA, batch_size=8, drop_last=True, num_workers=4, collate_fn=collate)
    """
    batches = """
        import torch_xla
        from torch.nn.utils.rnn import pad_sequence

        def collate(batch):
            return pad_sequence(batch, batch_first=True)
    """
    assert lint(train=train, batches=batches) == [("batches.py", 6, "XLA209")]


@pytest.mark.parametrize("equal", ["torch.manual_seed(3)", "", "xm.broadcast_master_param(net)"])
def test_what_makes_weights_equal_in_another_file(lint, equal):
    seed = equal if "seed" in equal else "pass"
    sent = equal if "param" in equal else "pass"
    start = f"""
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp
        from trainer import Trainer

        def main(index, loader):
            {seed}
            trainer = Trainer(xm.xla_device())
            net = trainer.net
            {sent}
            trainer.fit(loader)

        xmp.spawn(main, args=(LOADER,))
    """
    trainer = """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.out = torch.nn.Linear(3, 3)

            def forward(self, x):
                return self.out(x)

        class Trainer:
            def __init__(self, device):
                self.device = device
                self.net = Net().to(device)

            def fit(self, loader):
                optim = torch.optim.SGD(self.net.parameters(), lr=0.1)
                for x in pl.MpDeviceLoader(loader, self.device):
                    optim.zero_grad()
                    self.net(x).mean().backward()
                    xm.optimizer_step(optim)
    """
    told = [code for _, _, code in lint(start=start, trainer=trainer) if code == "XLA426"]
    assert told == ([] if equal else ["XLA426"])


NETS = """
    import torch
    from transformers import AutoModel

    class Net(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.out = torch.nn.Linear(width, 3)

        def forward(self, x):
            return self.out(x)

        @classmethod
        def converted(cls, path):
            net = Net(512)
            own = net.state_dict()
            other = AutoModel.from_pretrained(path).state_dict()
            for key in other:
                own[key].copy_(other[key].t() if "proj" in key else other[key])
            return net

        def load_part(self, path):
            self.out.load_state_dict(torch.load(path))

    def wide():
        net = Net(512)
        return net
"""


@pytest.mark.parametrize(
    ("seed", "made", "told"),
    [
        ("pass", "wide()", True),
        ("torch.manual_seed(3)", "wide()", False),
        ("pass", 'Net.converted("org/net")', False),
        ("net = wide(); net.load_part(PATH)", "net", False),
    ],
)
def test_weights_that_a_helper_draws_are_told_where_they_can_be_sent(lint, seed, made, told):
    train = f"""
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        import torch_xla.distributed.xla_multiprocessing as xmp
        from nets import Net, wide

        def main(index, loader):
            {seed}
            device = xm.xla_device()
            net = {made}.to(device)
            optim = torch.optim.SGD(net.parameters(), lr=0.1)
            for x in pl.MpDeviceLoader(loader, device):
                optim.zero_grad()
                net(x).mean().backward()
                xm.optimizer_step(optim)

        xmp.spawn(main, args=(LOADER,))
    """
    found = [row for row in lint(nets=NETS, train=train) if row[2] == "XLA426"]
    assert found == ([("train.py", 11, "XLA426")] if told else [])


def test_the_master_alone_evaluates_with_a_function_of_another_file(lint):
    evaluate = """
        import torch

        def evaluate(model, batches):
            model.eval()
            total = 0
            with torch.no_grad():
                for batch in batches:
                    total += model(batch).sum()
            return total
    """
    train = """
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        import torch_xla.distributed.xla_multiprocessing as xmp
        import torch_xla.runtime as xr
        from scoring import evaluate

        def train(index, model, loader, optimizer, args):
            args.rank = xr.global_ordinal()
            device = xm.xla_device()
            model.to(device)
            for batch in pl.MpDeviceLoader(loader, device):
                model(batch).mean().backward()
                xm.optimizer_step(optimizer)
            if args.rank == 0:
                print(evaluate(model, loader))
            xm.rendezvous("evaluated")

        xmp.spawn(train, args=make())
    """
    assert ("train.py", 15, "XLA418") in lint(scoring=evaluate, train=train)


JOINED = """
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
from data import load


def train():
    print("training")
    load()


if __name__ == "__main__":
    dist.init_process_group("xla", init_method="xla://")
    train()
"""
LOADS = """
import torch


def load():
    print("loading")
    return torch.zeros(3)
"""
LOOKS = """
from data import load


def main():
    print(len(load()))


if __name__ == "__main__":
    main()
"""


def test_each_core_runs_the_script_that_joins_them_and_no_other(tmp_path):
    for name, text in {"train.py": JOINED, "data.py": LOADS, "look.py": LOOKS}.items():
        (tmp_path / name).write_text(text)
    results = run.lint_files(sorted(tmp_path.glob("*.py")), run.Plan(LintOptions()), jobs=1)
    told = {
        Path(item.filename).name: [f.locations[0].row for f in item.result.findings]
        for item in results
        if any(f.code == "XLA401" for f in item.result.findings)
    }
    assert sorted(told) == ["data.py", "train.py"]


def test_a_reduction_in_a_helper_whose_caller_goes_backward(lint):
    """What of the caller comes before and after is asked in its file, not in the helper's."""
    comm = """\
        import torch
        import torch_xla.core.xla_model as xm

        def mean_of(losses):
            values = xm.all_reduce(xm.REDUCE_SUM, torch.stack([losses[k] for k in losses]))
            return values
        """
    parts = """\
        def spread(labels):
            return sum(c for c in labels.unique())
        """
    train = """\
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        import torch_xla.distributed.xla_multiprocessing as xmp
        import comm
        import parts

        class Trainer:
            def __init__(self, model, optimizer):
                self.device = torch_xla.device()
                self.model, self.optimizer = model.to(self.device), optimizer

            def fit(self, loader):
                for x, y in pl.MpDeviceLoader(loader, self.device):
                    out = {"a": self.model(x).mean(), "b": parts.spread(y)}
                    sum(out.values()).backward()
                    xm.optimizer_step(self.optimizer)
                    seen = comm.mean_of(out)

        def each_core(index, model, optimizer, loader):
            Trainer(model, optimizer).fit(loader)

        if __name__ == "__main__":
            xmp.spawn(each_core, args=(None, None, []))
        """
    found = lint(train=train, comm=comm, parts=parts)
    assert ("parts.py", 2, "XLA201") in found


#: A script hands a function of one file to a function of another, which does not import it.
BESIDE = {
    "train.py": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

from evaluating import evaluate
from measures import measure


def main(index, data):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sampler = torch.utils.data.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
    evaluate(net, pl.MpDeviceLoader(loader, device), measure)


if __name__ == "__main__":
    torch_xla.launch(main, args=(torch.zeros(8),))
""",
    "evaluating.py": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def evaluate(net, loader, measure):
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            torch_xla.sync()
    score, spread = measure(out, y)
    if xm.is_master_ordinal():
        print("score", score, spread)
""",
    "measures.py": """\
def measure(out, y):
    right = (out.argmax(1) == y).float()
    score = right.mean()
    spread = right.std()
    score = score.item()
    return score, spread.item()
""",
}


def test_a_file_beside_another_is_read_where_a_script_brings_them_together(tmp_path):
    for name, text in BESIDE.items():
        (tmp_path / name).write_text(text)
    results = run.lint_files(sorted(tmp_path.glob("*.py")), run.Plan(LintOptions()))
    assert [result.result.failures for result in results] == [()] * len(BESIDE)
