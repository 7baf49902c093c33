"""XLA311: flags of torch that raise for XLA tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")


@rule("XLA311")
def unsupported_optimizer_flag(model: FileModel) -> Iterator[Problem]:
    """Find ``fused=True`` of optimizers and ``foreach=True`` of ``clip_grad_norm_``."""
    if not model.is_xla:
        return
    calls = [(call, "fused") for call in model.calls("torch.optim.*")]
    calls += [(call, "foreach") for call in model.calls(*_CLIPS)]
    for call, keyword in calls:
        value = given_true(model, call, keyword)
        if value is None or model.on_xla(call.node) is not OnXla.YES:
            continue
        yield model.problem(
            value,
            f"{keyword}=True raises RuntimeError for parameters on an XLA device",
            suggestion=f"leave {keyword} out",
            fix=model.fix(f"Remove {keyword}", model.remove_argument(call.node, value), safe=True),
        )
