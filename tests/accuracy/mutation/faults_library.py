"""Faults of models, optimizers, data, settings and frameworks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from tests.accuracy.mutation.kinds import (
    TORCH,
    XM,
    Fault,
    argument,
    around_loop,
    before_backward,
    behind,
    calls,
    counted,
    environment,
    functions,
    in_step,
    lines,
    removed,
    setting,
)
from tests.accuracy.mutation.planting import (
    body_of,
    called,
    code,
    everywhere,
    expression,
    having,
    keyword,
    only_call,
    places,
    statements,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.accuracy.mutation.planting import Mutation, Program

XLA = "import torch_xla"
OS = "import os"
_OPTIMIZERS = ("torch.optim.SGD", "torch.optim.Adam", "torch.optim.AdamW", "optim.AdamW")
_MOVED = re.compile(r"(model|net_g) = .*\.to\(device\)")


def _optimizer(edit: Callable[[cst.Call], object]) -> Callable[[cst.Call], object]:
    return lambda call: edit(call) if called(call) in _OPTIMIZERS else None


def _adafactor(call: cst.Call) -> object:
    return expression(f"torch.optim.Adafactor({code(call.args[0].value)})")


def _model_line(text: str) -> Callable[[str], str | None]:
    """What stands behind the line that moves a model (``MODEL``)."""

    def fits(line: str) -> str | None:
        found = _MOVED.fullmatch(line)
        return text.replace("MODEL", found[1]) if found else None

    return fits


def _device_line(text: str) -> Callable[[str], str | None]:
    return lambda line: text if line == "device = torch_xla.device()" else None


def _optimizer_line(text: str) -> Callable[[str], str | None]:
    return lambda line: text if re.match(r"(\w+) = torch\.optim\.\w+\(", line) else None


def _nothing_cleared(program: Program) -> Iterator[Mutation]:
    def edit(node: cst.CSTNode) -> object:
        call = only_call(node)
        cleared = call is not None and called(call).endswith(".zero_grad")
        return cst.RemoveFromParent() if cleared else None

    if ".zero_grad(" in program.text:
        yield lambda: everywhere(program.module, edit)


def _with_gradients(function: cst.FunctionDef) -> object:
    """``no_grad`` goes from an evaluation, as a decorator and as a block."""

    def edit(node: cst.CSTNode) -> object:
        if isinstance(node, cst.Decorator) and "no_grad" in code(node.decorator):
            return cst.RemoveFromParent()
        if isinstance(node, cst.With) and "no_grad" in code(node.items[0].item):
            return cst.FlattenSentinel(body_of(node.body))
        return None

    text = code(function)
    if ".eval()" not in text or "no_grad()" not in text or ".backward()" in text:
        return None
    return everywhere(function, edit)


def _no_end(program: Program) -> Iterator[Mutation]:
    """Steps without an end: of loops over a device loader the loader is one."""

    def edit(loop: cst.CSTNode) -> object:
        body = body_of(loop.body)  # type: ignore[attr-defined]
        ends = [line for line in body if code(line) == "torch_xla.sync()"]
        if not ends or not any(".backward()" in code(line) for line in body):
            return None
        kept = [line for line in body if line not in ends]
        return loop.with_changes(body=loop.body.with_changes(body=kept))  # type: ignore[attr-defined]

    yield from places(program, cst.For, edit)


def _seldom_ended(program: Program) -> Iterator[Mutation]:
    """``for turn, batch in enumerate(loader)`` whose graph ends in each hundredth turn."""

    def edit(loop: cst.CSTNode) -> object:
        assert isinstance(loop, cst.For)
        body = body_of(loop.body)
        if not any(".backward()" in code(line) for line in body):
            return None
        ends = {line: code(line) == "torch_xla.sync()" for line in body}
        if not any(ends.values()):
            return None
        seldom = statements("if turn % 100 == 0:\n    torch_xla.sync()")
        new = [part for line in body for part in (seldom if ends[line] else [line])]
        head = cst.parse_statement(
            f"for turn, ({code(loop.target)}) in enumerate({code(loop.iter)}): pass"
        )
        assert isinstance(head, cst.For)
        return head.with_changes(body=loop.body.with_changes(body=new))

    yield from places(program, cst.For, edit)


def _nothing_restored(function: cst.FunctionDef) -> object:
    def edit(node: cst.CSTNode) -> object:
        call = only_call(node)
        restores = call is not None and called(call).endswith((".restore", ".load_state_dict"))
        return cst.RemoveFromParent() if restores else None

    return everywhere(function, edit) if "prime_optimizer(" in code(function) else None


def _dropout(function: cst.FunctionDef) -> object:
    """The last call of ``forward`` gets an input without a part of it, in the evaluation too."""
    body = body_of(function.body)
    last = body[-1] if body else None
    if function.name.value != "forward" or not isinstance(last, cst.SimpleStatementLine):
        return None
    given = last.body[0]
    if not isinstance(given, cst.Return) or not isinstance(given.value, cst.Call):
        return None
    new = statements(f"return torch.nn.functional.dropout({code(given.value)}, 0.1)")
    return function.with_changes(body=function.body.with_changes(body=[*body[:-1], *new]))


def _recurrent(function: cst.FunctionDef) -> object:
    """A layer that ``__init__`` makes; a line there names it, as one for cuDNN does."""
    body = body_of(function.body)
    if function.name.value != "__init__" or not body or code(body[0]) != "super().__init__()":
        return None
    new = statements(
        "self.memory = torch.nn.LSTM(64, 64, batch_first=True)\nself.memory.flatten_parameters()"
    )
    return function.with_changes(body=function.body.with_changes(body=[body[0], *new, *body[1:]]))


def _cropped(loop: cst.CSTNode) -> object:
    body = body_of(loop.body)  # type: ignore[attr-defined]
    if "images" not in code(loop.target) or ".backward()" not in "".join(map(code, body)):  # type: ignore[attr-defined]
        return None
    if any(isinstance(line, cst.For) for line in body):
        return None
    new = statements("images = RandomCrop(28, padding=4)(images)")
    return loop.with_changes(body=loop.body.with_changes(body=[*new, *body]))  # type: ignore[attr-defined]


def _device_sample(function: cst.FunctionDef) -> object:
    body = body_of(function.body)
    if function.name.value != "__getitem__" or not code(body[-1]).startswith("return "):
        return None
    given = body[-1].body[0].value  # type: ignore[union-attr,index]
    parts = [item.value for item in given.elements] if isinstance(given, cst.Tuple) else [given]
    first, *rest = map(code, parts)
    new = statements(f"return {', '.join([f'{first}.to(torch_xla.device())', *rest])}")
    return function.with_changes(body=function.body.with_changes(body=[*body[:-1], *new]))


def _in_this_process(call: cst.Call) -> object:
    fits = (
        called(call) == "DataLoader" and keyword(call, "num_workers") and keyword(call, "sampler")
    )
    return without(call, "num_workers") if fits else None


def _bfloat16(call: cst.Call) -> object:
    if not called(call).endswith(".to") or [code(arg.value) for arg in call.args] != ["device"]:
        return None
    fits = called(call) == "model.to" or called(call)[0].isupper()
    return having(call, dtype="torch.bfloat16") if fits else None


def _half(call: cst.Call) -> object:
    fits = called(call) == "torch.autocast" and code(call.args[0].value) == '"xla"'
    return having(call, dtype="torch.float16") if fits else None


def _dynamic_padding(call: cst.Call) -> object:
    padding = keyword(call, "padding")
    if padding is None or code(padding.value) != '"max_length"':
        return None
    return without(having(call, padding="True"), "max_length")


def _hook_line(name: str, text: str) -> Callable[[cst.FunctionDef], object]:
    """A statement before the last one of a method."""

    def edit(function: cst.FunctionDef) -> object:
        if function.name.value != name:
            return None
        body = body_of(function.body)
        block = function.body.with_changes(body=[*body[:-1], *statements(text), body[-1]])
        return function.with_changes(body=block)

    return edit


def _shown(function: cst.FunctionDef) -> object:
    def edit(node: cst.CSTNode) -> object:
        if called(node) != "self.log" or keyword(node, "on_step"):  # type: ignore[arg-type]
            return None
        return having(node, prog_bar="True")  # type: ignore[arg-type]

    edited = everywhere(function, edit)
    return (
        edited
        if function.name.value == "training_step" and code(edited) != code(function)
        else None
    )


def _old_hook(function: cst.FunctionDef) -> object:
    if function.name.value != "on_validation_epoch_end":
        return None
    params = function.params.with_changes(
        params=[*function.params.params, cst.Param(cst.Name("outputs"))]
    )
    return function.with_changes(name=cst.Name("validation_epoch_end"), params=params)


def _raw_step(call: cst.Call) -> object:
    return expression("xm.optimizer_step(optimizer)") if code(call) == "optimizer.step()" else None


def _old_name(old: str, new: str) -> Callable[[cst.Call], object]:
    return lambda call: expression(new) if code(call) == old else None


_LOSSES = "losses = LOSS.detach().reshape(-1)\n"
_ACCELERATE = ("Accelerator(",)
#: A program of TorchTPU: another runtime, with rules of its own.
_TPU = ("tpu_dist",)

FAULTS: Sequence[Fault] = (
    Fault("index on the device", ("XLA108",), in_step(_LOSSES + "worst = losses[losses.argmax()]")),
    Fault("inverse", ("XLA109",),
          in_step("inverse = torch.linalg.inv(LOSS.detach().reshape(1, 1))", TORCH)),
    Fault("Adafactor", ("XLA110",), calls(_optimizer(_adafactor), TORCH),
          unless=("use_spmd", "lightning", *_TPU)),
    Fault("read now and then", ("XLA113",), counted("if STEP % 100 == 0:\n    print(LOSS.item())")),
    Fault("wait in the step", ("XLA114",), in_step("xm.wait_device_ops()", XM)),
    Fault("sync that waits", ("XLA114",), in_step("torch_xla.sync(wait=True)", XLA)),
    Fault("counter as index", ("XLA205",),
          counted("scaled = torch.linspace(0, 1, 1000, device=torch_xla.device())[STEP] * 2", TORCH,
                  XLA)),
    Fault("history joined", ("XLA206",),
          around_loop("seen = torch.zeros(0, device=torch_xla.device())",
                      "seen = torch.cat([seen, LOSS.detach().reshape(1)])", TORCH, XLA)),
    Fault("crops on the device", ("XLA208",),
          lambda program: places(program, cst.For, _cropped,
                                 ["from torchvision.transforms import RandomCrop"]),
          ("MpDeviceLoader(",)),
    Fault("padded to the longest", ("XLA209",), calls(_dynamic_padding), ("def collate(",)),
    Fault("recurrent layer", ("XLA216",), functions(_recurrent, TORCH), ("torch_xla",)),
    Fault("end of the step removed", ("XLA301",), _no_end),
    Fault("end of the step seldom", ("XLA212",), _seldom_ended),
    Fault("weights tied before the move", ("XLA306",), lines(removed("model.tie"))),
    Fault("fused optimizer", ("XLA311",),
          calls(_optimizer(lambda call: having(call, fused="True"))), unless=_TPU),
    Fault("compiled for another device", ("XLA314",),
          behind(_model_line("MODEL = torch.compile(MODEL)"), TORCH)),
    Fault("expanded and written", ("XLA318",),
          in_step("pair = LOSS.detach().reshape(1).expand(2)\npair += 1"), unless=_TPU),
    Fault("graph cut", ("XLA319",), before_backward("torch_xla.sync()", XLA)),
    Fault("evaluation with gradients", ("XLA320",), functions(_with_gradients)),
    Fault("dropout goes on", ("XLA321",), functions(_dropout, TORCH)),
    Fault("dropout without training", ("XLA321",), calls(setting("dropout", "training", None))),
    Fault("largest value", ("XLA322",), in_step(_LOSSES + "top = losses.amax()"), unless=_TPU),
    Fault("optimizer primed for nothing", ("XLA323",), functions(_nothing_restored)),
    Fault("pure function that draws", ("XLA324",),
          calls(setting("assume_pure", "add_rng_seed_argument", None))),
    Fault("gradients never cleared", ("XLA326",), _nothing_cleared,
          unless=(*_ACCELERATE, *_TPU)),
    Fault("median", ("XLA501",),
          in_step("middle = torch.median(LOSS.detach().reshape(-1))", TORCH)),
    Fault("sparse tensor", ("XLA502",),
          in_step("sparse = torch.eye(8, device=torch_xla.device()).to_sparse()", TORCH, XLA),
          unless=_TPU),
    Fault("generator of the device", ("XLA502",),
          behind(_device_line("generator = torch.Generator(device=device)"), TORCH)),
    Fault("wanted values on the host", ("XLA504",),
          in_step("wanted = torch.ones(8)\n"
                  "off = torch.nn.functional.mse_loss(LOSS.detach().reshape(1).expand(8), wanted)",
                  TORCH),
          unless=_TPU),
    Fault("overlapping boxes", ("XLA503",),
          in_step("boxes = LOSS.detach().reshape(1, 1).repeat(1, 4)\n"
                  "kept = torchvision.ops.nms(boxes, boxes[:, 0], 0.5)", "import torchvision"),
          unless=_TPU),
    Fault("dataset on the device", ("XLA605",), functions(_device_sample, XLA), ("(Dataset)",)),
    Fault("no workers", ("XLA606",), calls(_in_this_process), ("Image.open(", "ImageFolder(")),
    Fault("gradient scaler", ("XLA704",),
          behind(_optimizer_line("scaler = torch.cuda.amp.GradScaler()\n"
                                 "print(scaler.get_scale())"), TORCH),
          unless=_TPU),
    Fault("double precision", ("XLA705",), in_step("exact = LOSS.detach().double()")),
    Fault("float64 samples", ("XLA705",), calls(setting("asarray", "dtype", None))),
    Fault("DataParallel", ("XLA709",),
          behind(_model_line("MODEL = torch.nn.DataParallel(MODEL)"), TORCH)),
    Fault("sum in bfloat16", ("XLA712",), environment('os.environ["XLA_USE_BF16"] = "1"', OS),
          ("+= loss.detach()",), _ACCELERATE),
    Fault("float16", ("XLA713",), calls(_half)),
    Fault("switch for debugging", ("XLA714",), environment('os.environ["XLA_IR_DEBUG"] = "1"', OS),
          unless=_TPU),
    Fault("device that PJRT has not", ("XLA715",),
          environment('os.environ["PJRT_DEVICE"] = "CUDA"', OS), unless=_TPU),
    Fault("setting too late", ("XLA715",),
          behind(_device_line('os.environ["PJRT_DEVICE"] = "TPU"'), OS)),
    Fault("install of 2021", ("XLA716",),
          environment('os.system("pip install cloud-tpu-client==0.10 torch==1.9")', OS),
          unless=_TPU),
    Fault("component for GPUs", ("XLA717",), environment("from apex import amp"), ("torch_xla",)),
    Fault("precision that nothing reads", ("XLA731",),
          environment('torch.set_float32_matmul_precision("highest")', TORCH), unless=_TPU),
    Fault("lost updates", ("XLA732",), calls(_bfloat16, TORCH), ("lr=1e-4",)),
    Fault("deprecated: device", ("XLA802",),
          calls(_old_name("torch_xla.device()", "xm.xla_device()"), XM)),
    Fault("deprecated: mark_step", ("XLA802",),
          calls(_old_name("torch_xla.sync()", "xm.mark_step()"), XM)),
    Fault("removed argument", ("XLA803",),
          calls(setting("MpDeviceLoader", "fixed_batch_size", "True"))),
    Fault("module that nobody keeps", ("XLA804",),
          environment("import torch_xla.distributed.data_parallel as dp"), ("torch_xla",)),
    Fault("PyTorch's own function", ("XLA860",), in_step("torch.tpu.synchronize()"), _TPU),
    Fault("dynamic compilation", ("XLA861",), calls(setting("compile", "dynamic", "True")), _TPU),
    Fault("old hook", ("XLA910",), functions(_old_hook)),
    Fault("step by hand in Lightning", ("XLA902",),
          functions(_hook_line("training_step", "xm.mark_step()"), XM), ("lightning",)),
    Fault("progress bar", ("XLA903",), functions(_shown)),
    Fault("Lightning logs each step", ("XLA903",),
          calls(setting("Trainer", "log_every_n_steps", "1")), ("lightning",)),
    Fault("raw step of Accelerate", ("XLA904",), calls(_raw_step, XM), _ACCELERATE),
    Fault("removed argument of Accelerate", ("XLA906",),
          calls(setting("Accelerator", "fp16", "True"))),
    Fault("half precision of Accelerate", ("XLA906",),
          argument("Accelerator", '"bf16"', '"fp16"')),
)  # fmt: skip
