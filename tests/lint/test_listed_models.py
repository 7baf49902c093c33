"""What makes models out of registries, tables, class attributes and class methods, told or not.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_in_files, marks_of, told, told_in_files

XM = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
TRAINED = """
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
"""
REGISTER = """
MODELS = {}
def register_model(name):
    def keep(cls):
        MODELS[name] = cls
        return cls
    return keep
"""
REGISTRY = """
class Registry:
    def __init__(self, name):
        self._name = name
        self._module_dict = {}
    def get(self, key):
        return self._module_dict[key]
    def _register(self, cls, name=None):
        if name is None:
            name = cls.__name__
        self._module_dict[name] = cls
    def register_module(self, name=None, module=None):
        if module is not None:
            self._register(module, name)
            return module
        def wrap(cls):
            self._register(cls, name)
            return cls
        return wrap
    def build(self, cfg):
        args = dict(cfg)
        kind = args.pop("type")
        return self.get(kind)(**args)  # !XLA426
MODELS = Registry("models")
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        return self.last(x)
"""
MASKING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        kept = x[x > 0]  # !XLA202
        return self.last(x)
"""

#: A card that the master writes, of an object that a class method is given.
CARD = """
class Card:
    def __init__(self, steps):
        {card}self.steps = steps
    @classmethod
    def of(cls, trainer):
        return cls(trainer.steps)
class Trainer:
    def __init__(self, steps):
        {trainer}
        self.steps = steps
    def write(self):
        if xm.is_master_ordinal():
            print(Card.of(self).steps){told}
def main(index):
    Trainer(10).write()
if __name__ == "__main__":
    xmp.spawn(main)
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA405: a class method makes its own class, not that of its argument": XM
    + CARD.format(card="", trainer='xm.rendezvous("made")', told=""),
    "XLA405: a class method makes its own class, in which all cores meet": XM
    + CARD.format(card='xm.rendezvous("card"); ', trainer="pass", told="  # !XLA405"),
    "XLA426 XLA202: registry dict by name in decorator": XM
    + REGISTER
    + """\
@register_model("net")"""
    + MASKING
    + """
def main(index, name="net"):
    device = torch_xla.device()
    net = MODELS[name]().to(device)  # !XLA426
"""
    + TRAINED,
    "XLA426 XLA202: registry dict .get, function build": XM
    + REGISTER
    + """\
@register_model("net")"""
    + MASKING
    + """
def build(name, **kwargs):
    return MODELS.get(name)(**kwargs)  # !XLA426
def main(index, name="net"):
    device = torch_xla.device()
    net = build(name).to(device)
"""
    + TRAINED,
    "XLA426 XLA202: mm registry": XM
    + REGISTRY
    + """\
@MODELS.register_module()"""
    + MASKING
    + """
def main(index, cfg):
    device = torch_xla.device()
    net = MODELS.build(cfg.model).to(device)
"""
    + TRAINED,
    "XLA426 XLA202: add_to_registry with bare decorator": XM
    + """
_known = {}
def register(cls):
    _known[cls.__name__.lower()] = cls
    return cls
@register"""
    + MASKING
    + """
def main(index, args):
    device = torch_xla.device()
    net = _known[args.arch]().to(device)  # !XLA426
"""
    + TRAINED,
    "XLA426 XLA202: fairseq register_model, classmethod build": XM
    + REGISTER
    + """
@register_model("net")
class Net(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.last = nn.Linear(wide, 4)
    @classmethod
    def build_model(cls, args):
        return cls(args.wide)  # !XLA426
    def forward(self, x):
        kept = x[x > 0]  # !XLA202
        return self.last(x)
def build_model(args):
    return MODELS[args.arch].build_model(args)
def main(index, args):
    device = torch_xla.device()
    net = build_model(args).to(device)
"""
    + TRAINED,
    "XLA426 XLA202: registry of functions": XM
    + REGISTER
    + MASKING
    + """
@register_model("net_small")
def net_small(**kwargs):
    return Net(**kwargs)  # !XLA426
def main(index, args):
    device = torch_xla.device()
    net = MODELS[args.arch]().to(device)
"""
    + TRAINED,
    "XLA426 XLA202: class attribute": XM
    + MASKING
    + """
class Task:
    model_class = Net
    def build(self):
        return self.model_class()  # !XLA426
def main(index):
    device = torch_xla.device()
    net = Task().build().to(device)
"""
    + TRAINED,
    "XLA426 XLA202: dict of classes in class attribute": XM
    + MASKING
    + """
class Factory:
    kinds = {"net": Net}
    @classmethod
    def make(cls, name):
        return cls.kinds[name]()  # !XLA426
def main(index, args):
    device = torch_xla.device()
    net = Factory.make(args.arch).to(device)
"""
    + TRAINED,
    "XLA426 XLA202: subclass overrides class attribute": XM
    + MASKING
    + """
class Task:
    model_class = None
    def build(self):
        return self.model_class()  # !XLA426
class NetTask(Task):
    model_class = Net
def main(index):
    device = torch_xla.device()
    net = NetTask().build().to(device)
"""
    + TRAINED,
    "XLA426 XLA202: __init_subclass__": XM
    + """
class Base(nn.Module):
    kinds = {}
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kinds[cls.__name__] = cls

class Net(Base):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    def forward(self, x):
        kept = x[x > 0]  # !XLA202
        return self.last(x)

def main(index, args):
    device = torch_xla.device()
    net = Base.kinds[args.arch]().to(device)  # !XLA426
"""
    + TRAINED,
    "XLA426: healthy: seeded registry": XM
    + REGISTER
    + """\
@register_model("net")"""
    + NET
    + """
def main(index, name="net"):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = MODELS[name]().to(device)
"""
    + TRAINED,
    "XLA426: healthy: registry whose models load": XM
    + REGISTER
    + """\
@register_model("net")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = AutoModel.from_pretrained("bert-base-cased")
    def forward(self, x):
        return self.inner(x)
def main(index, name="net"):
    device = torch_xla.device()
    net = MODELS[name]().to(device)
"""
    + TRAINED,
    "XLA426: healthy: registry of losses": XM
    + REGISTER
    + """\
@register_model("focal")
class FocalLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.ones(3))
    def forward(self, x, y):
        return x.sum()
def main(index, name="net"):
    device = torch_xla.device()
    net = MODELS[name]().to(device)
"""
    + TRAINED,
    "XLA101 XLA426: classmethod 0": XM
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    @classmethod
    def build(cls, args):
        return cls()  # !XLA426
    @staticmethod
    def make():
        return Net()
    def forward(self, x):
        return self.last(x), "text"
    def meter(self, x):
        return x.sum()

NETS = {"a": Net}
class Holder:
    net = Net
def pick():
    return Net
def main(index, args):
    device = torch_xla.device()
    net = Net.build(1).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        out, text = net(x)
        net.meter(x).item()  # !XLA101
        out.cpu()  # !XLA101
        out.sum().backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA101 XLA426: classmethod 1": XM
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    @classmethod
    def build(cls, args):
        return cls()
    @staticmethod
    def make():
        return Net()  # !XLA426
    def forward(self, x):
        return self.last(x), "text"
    def meter(self, x):
        return x.sum()

NETS = {"a": Net}
class Holder:
    net = Net
def pick():
    return Net
def main(index, args):
    device = torch_xla.device()
    net = Net.make().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        out, text = net(x)
        net.meter(x).item()  # !XLA101
        out.cpu()  # !XLA101
        out.sum().backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA101 XLA426: classmethod 2": XM
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    @classmethod
    def build(cls, args):
        return cls()  # !XLA426
    @staticmethod
    def make():
        return Net()
    def forward(self, x):
        return self.last(x), "text"
    def meter(self, x):
        return x.sum()

NETS = {"a": Net}
class Holder:
    net = Net
def pick():
    return Net
def main(index, args):
    device = torch_xla.device()
    net = NETS[args.x].build(1).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        out, text = net(x)
        net.meter(x).item()  # !XLA101
        out.cpu()  # !XLA101
        out.sum().backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA101 XLA426: classmethod 3": XM
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    @classmethod
    def build(cls, args):
        return cls()  # !XLA426
    @staticmethod
    def make():
        return Net()
    def forward(self, x):
        return self.last(x), "text"
    def meter(self, x):
        return x.sum()

NETS = {"a": Net}
class Holder:
    net = Net
def pick():
    return Net
def main(index, args):
    device = torch_xla.device()
    net = Holder.net.build(1).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        out, text = net(x)
        net.meter(x).item()  # !XLA101
        out.cpu()  # !XLA101
        out.sum().backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA101 XLA426: classmethod 4": XM
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
    @classmethod
    def build(cls, args):
        return cls()  # !XLA426
    @staticmethod
    def make():
        return Net()
    def forward(self, x):
        return self.last(x), "text"
    def meter(self, x):
        return x.sum()

NETS = {"a": Net}
class Holder:
    net = Net
def pick():
    return Net
def main(index, args):
    device = torch_xla.device()
    net = pick().build(1).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        out, text = net(x)
        net.meter(x).item()  # !XLA101
        out.cpu()  # !XLA101
        out.sum().backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(main)
""",
}

#: File by file, as they stand in a project.
PROJECTS = {
    "XLA426 XLA202: mm registry other file": {
        "registry.py": REGISTRY.replace("  # !XLA426", ""),
        "nets.py": """\
import torch.nn as nn
from registry import MODELS
@MODELS.register_module()"""
        + MASKING,
        "train.py": XM
        + """
import nets
from registry import MODELS
def main(index, cfg):
    device = torch_xla.device()
    net = MODELS.build(cfg.model).to(device)  # !XLA426
"""
        + TRAINED,
    },
    "XLA426 XLA202: module.__dict__ of own module": {
        "nets.py": """\
import torch.nn as nn
"""
        + MASKING,
        "train.py": XM
        + """
import nets
def main(index, args):
    device = torch_xla.device()
    net = nets.__dict__[args.arch]().to(device)  # !XLA426
"""
        + TRAINED,
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_people_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


@pytest.mark.parametrize("name", PROJECTS)
def test_over_the_files_of_a_project(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = PROJECTS[name]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)
