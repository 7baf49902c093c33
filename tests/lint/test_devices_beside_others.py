"""False alarms in projects for which XLA is one device among others, with what is still told."""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import marks_in_files, rows, told_in_files

SPAWNED = """
import os
from pathlib import Path
import numpy as np
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

def keep(path, features):
    {made}
    with open(name, "wb") as file:
        np.save(file, features)
    os.replace(name, path)

def main(index, args):
    keep(Path("x.npy"), np.zeros(3))

if __name__ == "__main__":
    xmp.spawn(main, args=(1,))
"""


def test_a_file_with_the_number_of_the_process_in_its_name_is_its_own():
    own = SPAWNED.format(made='name = path.with_name(f"{path.name}.{os.getpid()}.part")')
    assert rows(own, "XLA406") == []


def test_a_file_of_one_name_is_told_where_it_is_opened():
    shared = SPAWNED.format(made='name = path.with_name(f"{path.name}.part")')
    assert rows(shared, "XLA406") == [10, 12]  # and what one core has moved is gone for the others


@pytest.mark.parametrize(("value", "told"), [("str(0)", []), ('"0"', []), ("str(1)", [5])])
def test_a_setting_that_is_turned_off_hides_nothing(value, told):
    program = f"""
    import os
    import torch_xla

    os.environ["XLA_DOWNCAST_BF16"] = {value}
    """
    assert rows(program, "XLA701") == told


SEARCH = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.loader, self.optimizer = model, loader, optimizer

    def train(self, trial):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            xm.optimizer_step(self.optimizer)
        xm.rendezvous("trained")

def search(trainer, study, trials):
    if xm.is_master_ordinal():
        def objective(trial):
            trainer.train(trial)
            return trainer.score

        study.optimize(objective, n_trials=trials)
    {others}

def main(index, study):
    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    search(Trainer(model, [], optimizer), study, 3)

if __name__ == "__main__":
    xmp.spawn(main, args=(None,))
"""
FOLLOW = """else:
        for _ in range(trials):
            trainer.train(None)"""


def test_the_other_cores_follow_the_search_of_the_master():
    assert rows(SEARCH.format(others=FOLLOW), "XLA405") == []


def test_a_search_that_nobody_follows_is_told():
    assert rows(SEARCH.format(others=""), "XLA405") != []


SAMPLER = """
import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
import torch_xla.core.xla_model as xm

class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model.to(xm.xla_device()), args

    def loader(self, dataset):
        sampler = RandomSampler(dataset) if {test} else DistributedSampler(dataset)
        return DataLoader(dataset, sampler=sampler, batch_size=4, drop_last=True)
"""


def test_a_sampler_of_processes_that_a_launcher_starts_asks_their_group():
    assert rows(SAMPLER.format(test="self.args.local_rank == -1"), "XLA409") == []


def test_a_sampler_of_all_cores_asks_a_group_that_nobody_joins():
    assert rows(SAMPLER.format(test="xm.xrt_world_size() == 1"), "XLA409") == [12]


DEVICE = """
import torch
import torch_xla.core.xla_model as xm

class Trainer:
    def configure(self, config):
        if config.device == "xla":
            self.device = xm.xla_device()
            self.rank = xm.get_ordinal()
        else:
            self.rank = config.local_rank
        {then}

    def fit(self, model, loader, optimizer):
        model.to(self.device)
        for batch in loader:
            model(batch.to(self.device)).sum().backward()
            xm.optimizer_step(optimizer)
"""


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("config.init_method is not None", []),
        ("config.local_rank != -1", []),
        ("config.fp16", [13]),
    ],
)
def test_gpus_where_a_process_group_is_joined(test, told):
    then = f"if {test}:\n            torch.cuda.set_device(self.rank)"
    assert rows(DEVICE.format(then=then), "XLA707") == told


def test_a_group_of_xla_devices_says_nothing_of_gpus():
    joined = DEVICE.format(
        then="if config.init_method is not None:\n"
        '            torch.distributed.init_process_group("xla", init_method="xla://")\n'
        "            torch.cuda.set_device(self.rank)"
    )
    assert rows(joined, "XLA707") == [14]


ASKS = """
import torch
import torch.autograd.profiler
import torch_xla.core.xla_model as xm

def train(model, loader, optimizer, options):
    model.to(xm.xla_device())
    for batch in loader:
        model(batch.to(xm.xla_device())).sum().backward()
        xm.optimizer_step(optimizer)
        {asked}
"""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("torch.cuda.cudart().cudaProfilerStart()", [11]),
        ("torch.cuda.profiler.start()", [11]),
        ("note = torch.autograd.profiler.emit_nvtx()", [11]),
        ("note = torch.autograd.profiler.emit_nvtx(enabled=True)", [11]),
        ("note = torch.autograd.profiler.emit_nvtx(enabled=options.nvtx)", []),
        ("note = torch.autograd.profiler.emit_itt()", []),
        ("print(torch.cuda.get_device_name(0))", [11]),
        ("print(torch.cuda.memory_reserved())", [11]),
        ("torch.cuda.ipc_collect()", [11]),
        ("print(torch.cuda.device_count(), torch.cuda.get_rng_state_all())", []),
        ("print(torch.cuda.mem_get_info() if torch.cuda.is_available() else 0)", []),
    ],
)
def test_what_cuda_is_asked_without_a_gpu(asked, told):
    assert rows(ASKS.format(asked=asked), "XLA707") == told


FLAG = """
import torch
import torch_xla.distributed.parallel_loader as pl

class Trainer:
    def evaluate(self, loader, device):
        for inputs in pl.MpDeviceLoader(loader, device):
            self.score(self.model, inputs)

    def score(self, model, inputs):
        asked = inputs.get("{key}", None)
        if asked > 0:
            return None
        with torch.no_grad():
            return model(**inputs)
"""


@pytest.mark.parametrize(("key", "told"), [("return_loss", []), ("weight", [12])])
def test_a_flag_beside_the_tensors_of_a_batch_is_pythons(key, told):
    assert rows(FLAG.format(key=key), "XLA104") == told


PRINTS = """
import torch_xla.distributed.xla_multiprocessing as xmp
from helpers import {asked}

def main(index):
    if {asked}():
        print("checking bfloat16")

if __name__ == "__main__":
    xmp.spawn(main)
"""


@pytest.mark.parametrize(("asked", "told"), [("is_ipex_available", []), ("is_ready", [7])])
def test_extensions_for_other_devices_are_not_there_on_tpus(asked, told):
    assert rows(PRINTS.format(asked=asked), "XLA401") == told


ACCELERATED = """
import torch_xla
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16"{more})
"""


@pytest.mark.parametrize(("more", "told"), [(", deepspeed_plugin=stages", []), ("", [5])])
def test_a_program_of_deepspeed_is_for_gpus(more, told):
    assert rows(ACCELERATED.format(more=more), "XLA906") == told


CHOSEN = """
import torch
import torch_xla

def put(module, device):
    torch_xla.sync()
    index = torch.device(device).index if torch.device(device).type == "{kind}" else None
    if index is not None:
        module = module.cuda(index)
    return module
"""


@pytest.mark.parametrize(("kind", "told"), [("cuda", []), ("xla", [9])])
def test_what_is_none_on_other_kinds_of_devices(kind, told):
    assert rows(CHOSEN.format(kind=kind), "XLA706") == told


STAGES = """
from accelerate import Accelerator, DistributedType
{imports}

def main(model, optimizer, loader):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if accelerator.distributed_type == DistributedType.XLA:
        model.tie_weights()
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        print(loss.item())
"""


def test_a_question_for_tpus_is_left_over_in_a_program_for_gpus():
    assert rows(STAGES.format(imports="from accelerate.utils import DummyOptim"), "XLA101") == []


def test_an_accelerate_program_that_asks_for_tpus_is_told():
    assert rows(STAGES.format(imports=""), "XLA101") == [14]


FOLDERS = """
import json
from pathlib import Path
from transformers import Trainer

class Settings:
    def __init__(self, folder, index):
        self._folder = Path(folder) / "run" / str({part})
        write(self.config, self.folder / "config.json")

    @property
    def folder(self):
        return self._folder

def write(content, path):
    with path.open("wt") as file:
        json.dump(content, file)

def main(index):
    Trainer(Settings("out", index)).train()

def _mp_fn(index):
    # For xla_spawn (TPUs)
    main(index)
"""


@pytest.mark.parametrize(("part", "told"), [("index", []), ("1", [16])])
def test_a_folder_with_the_number_of_the_core_is_its_own(part, told):
    assert rows(FOLDERS.format(part=part), "XLA406") == told


HELPER = """
import torch
import torch_xla.core.xla_model as xm

def train(model, loader, optimizer):
    model.to(xm.xla_device())
    for batch in loader:
        loss = model(batch.to(xm.xla_device())).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        print(loss.item())
"""
SCRIPT = '\n\nif __name__ == "__main__":\n    train(torch.nn.Linear(2, 2), [], None)\n'


def test_what_helps_tests_is_no_program(tmp_path):
    files = {"tests/helpers.py": HELPER, "steps.py": HELPER, "tests/speed.py": HELPER + SCRIPT}
    told = told_in_files(tmp_path, files, {"XLA101"})
    assert {name for name, *_ in told} == {"steps.py", "tests/speed.py"}


def test_a_helper_of_tests_that_a_program_imports_is_the_programs(tmp_path):
    files = {"tests/helpers.py": HELPER, "run.py": "from tests.helpers import train\n"}
    assert told_in_files(tmp_path, files, {"XLA101"}) == {("tests/helpers.py", 11, "XLA101")}


GPU_SCRIPT = """
import torch
from torch.utils.data import DataLoader

def options():
    main = torch.utils.data.get_worker_info() is None
    return None if main else {}

def loader_of(dataset, args):
    return DataLoader(dataset, batch_size=args.batch_size, shuffle=True)

def train(model, loader, optimizer, device):
    for batch in loader:
        optimizer.zero_grad()
        model(batch.to(device)).sum().backward()
        optimizer.step()

def main(args, dataset, model):
    if torch.cuda.is_available():
        device = torch.device("cuda")
    else:
        device = torch.device("cpu")
    model.to(device)
    train(model, loader_of(dataset, args), torch.optim.SGD(model.parameters(), lr=0.1), device)

if __name__ == "__main__":
    main(options(), None, None)
"""
FOR_TPUS = """
import torch
import torch_xla.core.xla_model as xm
import train as base

def main(dataset, model):
    args = base.options()
    device = xm.xla_device()
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {step}

main(None, torch.nn.Linear(2, 2))
"""
STEP = "base.train(model, base.loader_of(dataset, args), optimizer, device)"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("xm.optimizer_step(optimizer)", set()),
        (STEP, {("train.py", 10, "XLA203"), ("train.py", 16, "XLA301")}),
    ],
)
def test_a_script_for_gpus_of_which_a_program_for_tpus_takes_functions(tmp_path, step, told):
    files = {"train.py": GPU_SCRIPT, "train_tpu.py": FOR_TPUS.format(step=step)}
    assert told_in_files(tmp_path, files, {"XLA203", "XLA301"}) == told


DOWNLOAD = """
import ignite.distributed as idist
from torchvision import datasets

def load(path):
    return datasets.CIFAR10(path, download=True)

def main(rank, path):
    {before}
    found = load(path)
    if idist.get_rank() == 0:
        idist.barrier()
    return found

with idist.Parallel(backend="xla-tpu") as parallel:
    parallel.run(main, ".")
"""
HELD = "if idist.get_rank() > 0:\n        idist.barrier()"


@pytest.mark.parametrize(("before", "told"), [(HELD, []), ("pass", [6])])
def test_the_first_process_downloads_in_a_helper(before, told):
    assert rows(DOWNLOAD.format(before=before), "XLA406") == told


SAVES = """
import torch
import torch_xla.core.xla_model as xm

def save(trainer, folder):
    if {test}:
        torch.cuda.synchronize()
    xm.save(trainer.model.state_dict(), folder)
"""


@pytest.mark.parametrize(("test", "told"), [("trainer.deepspeed", []), ("trainer.finished", [7])])
def test_what_deepspeed_needs(test, told):
    assert rows(SAVES.format(test=test), "XLA707") == told


KINDS = """
import torch
import torch_xla.core.xla_model as xm

def place(trainer, model):
    trainer.device = xm.xla_device()
    if {test}:
        model.split()
    else:
        model = model.cuda()
    return model
"""


@pytest.mark.parametrize(
    ("test", "told"), [("trainer.use_deepspeed", []), ("trainer.use_gpu", [10])]
)
def test_a_program_without_deepspeed_may_run_on_any_device(test, told):
    optional = KINDS.format(test=test).replace(
        "import torch_xla.core.xla_model as xm",
        "try:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n    xm = None",
    )
    told = [row + 3 for row in told]
    assert rows(optional, "XLA706") == told


LAYERS = """
import torch
from torch.utils.checkpoint import checkpoint

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)
"""


def test_a_model_of_a_script_for_gpus_may_run_on_tpus(tmp_path):
    gpu = GPU_SCRIPT.replace("import torch\n", "import torch\nfrom layers import Net\n", 1)
    gpu = gpu.replace("    model.to(device)\n", "    model = Net(4).to(device)\n")
    tpu = FOR_TPUS.format(step="xm.optimizer_step(optimizer)").replace(
        "torch.nn.Linear(2, 2)", "Net(2)"
    )
    tpu = tpu.replace("import train as base\n", "import train as base\nfrom layers import Net\n")
    files = {"layers.py": LAYERS, "train.py": gpu, "train_tpu.py": tpu}
    assert told_in_files(tmp_path, files, {"XLA312"}) == {("layers.py", 11, "XLA312")}


LITTLE_MEMORY = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def fit(model, loader, optimizer):
    model.to(torch_xla.device())
    for batch in loader:
        try:
            model(batch.to(torch_xla.device())).sum().backward()
            xm.optimizer_step(optimizer)
            torch.cuda.synchronize()
        except RuntimeError as error:
            {handled}
"""


@pytest.mark.parametrize(
    ("handled", "told"),
    [
        ('if "out of memory" not in str(error):\n                raise', [12]),
        (
            'if "CUDA out of memory." in str(error):\n                continue\n            raise',
            [12],
        ),
        ("continue", []),
        ("print(error)", []),
    ],
)
def test_who_asks_for_memory_has_the_device(handled, told):
    assert rows(LITTLE_MEMORY.format(handled=handled), "XLA707") == told


SHOWS = """\
import torch
from start import start
from torchvision.utils import save_image


def main(model, pictures, folder):
    accelerator = start("no")
    model = model.to(accelerator.device)
    for picture in pictures:
        try:
            save_image(model(picture[None].to(accelerator.device)), f"{folder}/shown.png")
            {then}
        except RuntimeError as error:
            if "out of memory" in str(error):
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main(torch.nn.Conv2d(3, 3, 1), [], "shown")
"""
START = """\
import accelerate
try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None


def start(precision):
    return accelerate.Accelerator(mixed_precision=precision)
"""


@pytest.mark.parametrize(
    ("then", "mark"), [("torch.cuda.ipc_collect()", ""), ("print(folder)", "  # !XLA406")]
)
def test_a_script_that_needs_a_gpu_however_little_memory_that_has(tmp_path, then, mark):
    script = SHOWS.replace('shown.png")', f'shown.png"){mark}').replace("{then}", then)
    files = {"show.py": script, "start.py": START}
    assert told_in_files(tmp_path, files, {"XLA406"}) == marks_in_files(files)
