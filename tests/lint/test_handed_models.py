"""Models whose class nobody has read, made once and moved by all cores."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """
import copy
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from detector.nets import Net, build
from detector.rows import batches


def learn(model, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(batches(), device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)

"""

HANDED = [
    """
def worker(index, flags, model):
    device = xm.xla_device()
    model.to(device)  # !XLA424
    optimizer = torch.optim.SGD(model.parameters(), lr=flags.lr)
    learn(model, device)

if __name__ == "__main__":
    from detector.cli import flags
    model = Net("nets/small.yaml", classes=flags.classes)
    xmp.spawn(worker, args=(flags, model), start_method="fork")
""",
    """
def worker(index, net):
    device = torch_xla.device()
    model = net.to(device)  # !XLA424
    model.load_state_dict(torch.load("net.pt", map_location="cpu"))
    learn(model, device)

def main():
    net = build("small")
    torch_xla.launch(worker, args=(net,))

main()
""",
    """
def main():
    net = Net(classes=4)

    def worker(index):
        device = torch_xla.device()
        model = net.to(device)  # !XLA424
        print(sum(p.numel() for p in model.parameters()) if index == 0 else "")
        learn(model, device)

    torch_xla.launch(worker, start_method="fork")

main()
""",
    """
def worker(index, flags):
    device = torch_xla.device()
    model = flags["net"]
    model = model.to(device)
    learn(model, device)

def main():
    torch_xla.launch(worker, args=({"net": Net()},))

main()
""",
]


@pytest.mark.parametrize("rest", HANDED)
def test_a_model_of_unread_code_is_shared(rest):
    text = HEAD + rest
    assert {item for item in found(text) if item[1] == "XLA424"} == set(marks(text))


@pytest.mark.parametrize(
    "rest",
    [
        # Each core makes its own.
        """
def worker(index, flags):
    device = torch_xla.device()
    model = Net(flags.classes)
    model.to(device)
    torch.optim.SGD(model.parameters(), lr=0.1)
    learn(model, device)

torch_xla.launch(worker, args=(None,))
""",
        # A copy.
        """
def worker(index, model):
    device = torch_xla.device()
    model = copy.deepcopy(model).to(device)
    torch.optim.SGD(model.parameters(), lr=0.1)
    learn(model, device)

if __name__ == "__main__":
    model = Net()
    torch_xla.launch(worker, args=(model,))
""",
        # No model, as far as anybody can see.
        """
def worker(index, anchors):
    device = torch_xla.device()
    anchors = anchors.to(device)
    model = Net(anchors).to(device)
    learn(model, device)

if __name__ == "__main__":
    anchors = build("anchors")
    torch_xla.launch(worker, args=(anchors,))
""",
        # One process, which moves its own.
        """
def main(model):
    device = torch_xla.device()
    model.to(device)
    torch.optim.SGD(model.parameters(), lr=0.1)
    learn(model, device)

main(Net())
""",
    ],
)
def test_own_models_and_what_is_no_model_are_left_alone(rest):
    assert "XLA424" not in codes(HEAD + rest)


#: Functions within the one that each core runs use its model.
WITHIN = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from shelf import choose, rows

def each_core(index, flags):
    where = xm.xla_device()
    chosen = choose(flags.kind)(classes=10).to(where)
    adam = torch.optim.Adam(chosen.parameters() if flags.all else flags.some(chosen))

    def learn(batches):
        chosen.train()
        for x, y in batches:
            adam.zero_grad()
            torch.nn.functional.nll_loss(chosen(x), y).backward()
            xm.optimizer_step(adam)

    def check(batches):
        right = 0
        {ready}
        {with_}
            for x, y in batches:  {mark}
                right += (chosen(x).argmax(1) == y).sum()
        return right.item()

    for epoch in range(flags.epochs):
        learn(pl.MpDeviceLoader(rows(True), where))
        print(check(pl.MpDeviceLoader(rows(False), where)))

if __name__ == "__main__":
    xmp.spawn(each_core, args=({{}},))
"""


@pytest.mark.parametrize("ready", ["chosen.eval()", "chosen.train(False)"])
@pytest.mark.parametrize(
    ("with_", "mark"), [("if True:", "# !XLA320"), ("with torch.no_grad():", "")]
)
@pytest.mark.parametrize("asked", ["chosen.parameters()", "flags.some(chosen)"])
def test_what_functions_within_do_with_a_model(ready, with_, mark, asked):
    program = WITHIN.format(ready=ready, with_=with_, mark=mark)
    program = program.replace("chosen.parameters() if flags.all else flags.some(chosen)", asked)
    told = {one for one in found(program) if one[1] == "XLA320"}
    assert told == marks(program)
