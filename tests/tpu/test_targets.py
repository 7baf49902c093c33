"""Targets are named as Google Cloud names slices, and what is known of them fits together."""

from __future__ import annotations

import pytest

from xladoctor import catalogue
from xladoctor.errors import UsageError
from xladoctor.tpu import targets


@pytest.mark.parametrize(
    ("name", "topology", "cores"),
    [
        ("v2-8", "v2:2x2x1", 8),
        ("v3-8", "v3:2x2x1", 8),
        ("v3-32", "v3:4x4x1", 32),
        ("v4-8", "v4:2x2x1", 4),  # the two TensorCores of a chip are one device
        ("v5litepod-8", "v5e:2x4", 8),
        ("v5e-1", "v5e:1x1", 1),
        ("v5p-16", "v5p:2x2x2", 8),
        ("V6E-8", "v6e:2x4", 8),
    ],
)
def test_a_slice_is_found_by_its_name(name: str, topology: str, cores: int) -> None:
    (target,) = targets.find(name)
    assert (target.topology, target.cores) == (topology, cores)


def test_several_are_found_in_the_order_given_and_once() -> None:
    found = targets.find("v5e-8, v3-8,v5litepod-8")
    assert [target.name for target in found] == ["v5e-8", "v3-8"]


@pytest.mark.parametrize("name", ["v9-8", "v3-7", "v3", "8", "v3-8x", "tpu"])
def test_one_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        targets.find(f"v3-8,{name}")
    assert name in str(caught.value)
    assert "v3-{8,32" in str(caught.value)


def test_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no target is named"):
        targets.find(" , ")


def test_all_names_are_found() -> None:
    names = targets.names()
    assert [target.name for target in targets.find(",".join(names))] == names


@pytest.mark.parametrize("generation", sorted(catalogue.table("targets")))
def test_the_published_peak_is_what_products_come_near(generation: str) -> None:
    """Cycles of large products, as the compiler estimates them, reach 60 to 100 % of the peak."""
    facts = catalogue.table("targets")[generation]
    best = max(
        2 * int(size) ** 3 / (cycles / facts["clock_hz"])
        for size, cycles in facts["matmul"].items()
    )
    assert 0.6 < best / facts["peak_flops"] <= 1.03


@pytest.mark.parametrize("generation", sorted(catalogue.table("targets")))
def test_what_a_program_may_use_is_less_than_there_is(generation: str) -> None:
    facts = catalogue.table("targets")[generation]
    assert 0.85 < facts["usable_bytes"] / facts["hbm_bytes"] < 1
    assert "http" in facts["source"]
