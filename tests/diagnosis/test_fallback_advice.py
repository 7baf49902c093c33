from __future__ import annotations

import pytest

from xladoctor import catalogue
from xladoctor.diagnosis.fallback_advice import advice, lowered_since


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("aten::silu", "since 1.9"),
        ("aten::prelu_backward", "since 2.2"),  # called _prelu_kernel_backward today
        ("aten::std", "torch_xla 2.9 lowers it: upgrade"),
        ("aten::adaptive_max_pool2d", "divides the input size"),
        ("aten::norm.ScalarOpt_dim", "p=0"),
        ("aten::_ctc_loss_backward", "no lowering for it; instead: compute this loss on the CPU"),
        ("aten::grid_sampler_2d", "no lowering for it; instead: augment in the Dataset"),
        ("aten::equal", "(a == b).all()"),
        ("aten::nobody_knows_it", "no lowering for it: replace it"),
        ("torchvision::nms", "fixed number of boxes"),
        ("mylib::op", "replace it by operations that run on the device"),
    ],
)
def test_advice_names_the_replacement_and_the_release(operation: str, words: str) -> None:
    assert words in advice(operation)


def test_what_was_measured_on_the_cpu_is_not_called_lowered() -> None:
    """The two tables were made apart: one from lists of names, one from runs on 2.9."""
    conditional = catalogue.table("lowerings")["conditional"]
    for row in catalogue.table("ops")["measured"]:
        for operation in row.get("fallback", ()):
            name = operation.rpartition("::")[2].partition(".")[0]
            assert lowered_since(name) is None or name in conditional, (row["name"], operation)


def test_the_table_names_each_operation_once() -> None:
    table = catalogue.table("lowerings")
    names = [name for names in table["since"].values() for name in names]
    assert len(names) == len(set(names))
    assert set(table["conditional"]) <= set(names)
    assert set(table["renamed"].values()) <= set(names)
    assert not set(table["renamed"]) & set(names)
