"""Programs of mixed styles, in several spellings each."""

import pytest
from rule_helpers import found, rows

TEXTS = """
import torch
import torch_xla
from transformers import AutoModelForCausalLM, AutoTokenizer


def update(rows, model, tokenizer, optimizer, device):
    prompt = "one question"
    for row in rows:
        {texts}
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        optimizer.zero_grad()


def main(rows):
    device = torch_xla.device()
    tokenizer = AutoTokenizer.from_pretrained("x")
    model = AutoModelForCausalLM.from_pretrained("x").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    update(rows, model, tokenizer, optimizer, device)
"""
OF_ONE_LENGTH_EACH = [
    (
        'enc = tokenizer(row["text"], return_tensors="pt", truncation=True, max_length=512)\n'
        '        ids = enc["input_ids"].to(device)'
    ),
    'ids = tokenizer(row["text"], return_tensors="pt").input_ids.to(device)',
    'enc = tokenizer(row["text"], return_tensors="pt").to(device)\n        ids = enc.input_ids',
    'full = f"{row}"\n        ids = tokenizer.encode(full, return_tensors="pt").to(device)',
    (
        'enc = tokenizer(row, padding=False, return_tensors="pt")\n'
        "        enc = {k: v.to(device) for k, v in enc.items()}\n        ids = enc['input_ids']"
    ),
]
OF_ONE_LENGTH_FOR_ALL = [
    'ids = tokenizer(prompt, return_tensors="pt").input_ids.to(device)',
    'ids = tokenizer("a text", return_tensors="pt").input_ids.to(device)',
    'ids = tokenizer(row, return_tensors="pt", padding="max_length").input_ids.to(device)',
    (
        'enc = tokenizer(row, return_tensors="pt")\n'
        "        ids = torch.nn.functional.pad(enc.input_ids, (0, 512 - len(enc))).to(device)"
    ),
    'enc = tokenizer(row, return_tensors="pt")\n        ids = rows[0]',
]


@pytest.mark.parametrize("texts", OF_ONE_LENGTH_EACH)
def test_a_text_without_padding_has_a_length_of_its_own(texts):
    assert rows(TEXTS.format(texts=texts), "XLA209")


@pytest.mark.parametrize("texts", OF_ONE_LENGTH_FOR_ALL)
def test_a_text_of_one_length_is_no_new_shape(texts):
    assert not rows(TEXTS.format(texts=texts), "XLA209")


LOADED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def train(index, dataset):
    device = xm.xla_device()
    net = torch.nn.Linear(4, 2).to(device)  # here
    {inside}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(torch.utils.data.DataLoader(dataset, 8), device):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
    xm.save(net.state_dict(), "net.pt")


{start}
"""
NET = "torch.nn.Linear(4, 2)"
SHOW = f"""
def show():
    net = {NET}
    net.load_state_dict(torch.load("net.pt"))
    print(net(torch.ones(1, 4)))

"""
LOADED_LATE = [
    f"xmp.spawn(train, args=(None,))\nnet = {NET}\nnet.load_state_dict(torch.load('net.pt'))",
    (
        "if __name__ == '__main__':\n    torch_xla.launch(train, args=(None,))\n"
        f"    net = {NET}\n    net.load_state_dict(torch.load('net.pt'))"
    ),
    (
        "def main():\n    xmp.spawn(train, args=(None,))\n"
        f"    net = {NET}\n    net.load_state_dict(torch.load('net.pt'))\n\nmain()"
    ),
    f"{SHOW}xmp.spawn(train, args=(None,))\nshow()",
    f"{SHOW}def main():\n    torch_xla.launch(train, args=(None,))\n    show()\n\nmain()",
]


@pytest.mark.parametrize("start", LOADED_LATE)
def test_weights_that_are_loaded_when_the_cores_have_ended_make_nothing_equal(start):
    assert rows(LOADED.format(inside="pass", start=start), "XLA426")


def test_weights_that_every_core_loads_are_equal():
    inside = "net.load_state_dict(torch.load('first.pt'))"
    start = "xmp.spawn(train, args=(None,))"
    assert not rows(LOADED.format(inside=inside, start=start), "XLA426")


SAVED = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def train(index, dataset):
    device = xm.xla_device()
    torch.manual_seed(1)
    net = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    plain = torch.utils.data.DataLoader(dataset, 8, drop_last=True)
    loader = pl.MpDeviceLoader(plain, device)
    step = 0
    {outer}
        {first}
        for x, y in {over}:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            xm.optimizer_step(optimizer)
            optimizer.zero_grad()
            step += 1
        {last}
    if xm.is_master_ordinal():
        xm.save(net.state_dict(), "net.pt")


xmp.spawn(train, args=(None,))
"""
USUAL = {"outer": "while step < 100:", "first": "net.train()", "over": "loader", "last": "pass"}


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"outer": "for epoch in range(3):"},
        {"outer": "while True:", "last": "if step > 100: break"},
        {"outer": "for epoch in range(3):", "over": "pl.MpDeviceLoader(plain, device)"},
        {"last": "xm.master_print(step)"},
    ],
)
def test_nothing_is_pending_behind_a_loop_over_epochs(written):
    assert not rows(SAVED.format(**{**USUAL, **written}), "XLA405")


@pytest.mark.parametrize(
    "written",
    [
        {"over": "plain"},
        {"last": "loss = xm.all_reduce(xm.REDUCE_SUM, loss)"},
        {"first": "if step > 50: break"},
    ],
)
def test_what_is_pending_behind_the_last_end_is_told(written):
    assert rows(SAVED.format(**{**USUAL, **written}), "XLA405")


INNER = """
import torch_xla.core.xla_model as xm
import losses


def make(G, D, config):
    {head}
        for turn in range({turns}):
            D.optim.zero_grad()
            loss = losses.of(D(x[turn]))
            loss.backward()
            xm.optimizer_step(D.optim)
        if xm.is_master_ordinal():
            print(loss.shape)
        return loss
    return {name}
"""


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("def train(x, y):", "train"),
        ("def train(x, y, step=0):", "train"),
        ("def train(x, *rest):", "train"),
        ("def step(x):", "step"),
        ("def update(x, lr):", "update"),
    ],
)
def test_a_few_steps_on_one_batch_end_where_another_file_calls_them(head, name):
    for turns in ('config["steps"]', "config.steps"):
        assert not [
            code
            for _, code in found(INNER.format(head=head, name=name, turns=turns))
            if code == "XLA301"
        ]


METER = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
{imports}


def train_one_epoch(model, criterion, loader, optimizer, device):
    {made}
    for images, targets in {name}.log_every(pl.MpDeviceLoader(loader, device), 10):
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
        {update}
        {name}.update(lr=optimizer.param_groups[0]["lr"])
"""


@pytest.mark.parametrize(
    ("imports", "made", "update", "told"),
    [
        ("import utils", 'm = utils.MetricLogger(delimiter="  ")', "m.update(loss=loss)", True),
        ("from util import misc", "m = misc.MetricLogger()", "m.update(loss=loss.detach())", True),
        ("from misc import MetricLogger", "m = MetricLogger()", 'm.update(**{"l": loss})', True),
        ("import utils as u", "m = u.MetricLogger()", "m.update(loss=loss, x=1)", True),
        (
            "import util.misc as misc",
            "m = misc.MetricLogger()",
            "m.update(a=1, b=loss * 2)",
            True,
        ),
        # It has read already, and that is told; nothing is left for the meter to read.
        ("import utils", "m = utils.MetricLogger()", "m.update(loss=loss.item())", False),
        ("import utils", "m = utils.History()", "m.update(loss=loss)", False),
        ("class MetricLogger(dict): ...", "m = MetricLogger()", "m.update(loss=loss)", False),
    ],
)
def test_the_meter_that_everybody_copies_reads(imports, made, update, told):
    program = METER.format(imports=imports, made=made, update=update, name="m")
    assert ("XLA109" in {code for _, code in found(program)}) is told
