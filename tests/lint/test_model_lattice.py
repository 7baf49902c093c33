"""Values are a lattice: what is known at a place does not depend on the order of its roads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_helpers import found

from xladoctor.lint.model.contained import container, dictionary, element_of
from xladoctor.lint.model.values import NOTHING, NUMBER, UNKNOWN, Kind, Value, join

_SINGLE = [kind for kind in Kind if kind not in {Kind.NOTHING, Kind.CONTAINER}]


@st.composite
def _leaves(draw):
    kind = draw(st.sampled_from(_SINGLE))
    flag = st.booleans()
    return Value(
        kind,
        certain=kind is not Kind.UNKNOWN and draw(flag),
        local=draw(flag),
        on_device=draw(flag),
        made_of_device=draw(flag),
        type_name=draw(st.sampled_from([None, "a.B", "c.D"])),
        element=draw(st.sampled_from([None, NUMBER, UNKNOWN])),
        bound=draw(st.sampled_from([(), ((None, NUMBER),)])),
    )


def _larger(inner):
    items = st.lists(inner, min_size=1, max_size=3).map(tuple)
    entries = st.lists(st.tuples(st.sampled_from(["a", "b", None]), inner), max_size=3)
    return st.one_of(
        st.builds(container, st.one_of(st.none(), inner), st.one_of(st.none(), items)),
        st.builds(dictionary, entries),
        st.builds(join, inner, inner),
    )


values = st.recursive(st.one_of(_leaves(), st.just(NOTHING)), _larger, max_leaves=6)


def below(one, other):
    """Whether a value says at least as much as another: joining them adds nothing to the other."""
    return join(one, other) == other


@given(values, values)
def test_join_is_commutative(one, other):
    assert join(one, other) == join(other, one)


@given(values, values, values)
def test_join_is_associative(one, two, three):
    assert join(join(one, two), three) == join(one, join(two, three))


@given(values)
def test_join_is_idempotent_and_nothing_is_neutral(value):
    assert join(value, value) == value
    assert join(NOTHING, value) == value == join(value, NOTHING)


@given(values, values, values)
def test_join_is_monotone(one, other, third):
    higher = join(one, other)
    assert below(one, higher)
    assert below(join(one, third), join(higher, third))


@given(values, values)
def test_what_a_container_holds_is_no_less_after_a_join(one, other):
    both = join(container(one), container(other))
    assert below(element_of(container(one)), element_of(both)) or container(one).element is None


@given(st.lists(_leaves(), min_size=2, max_size=4))
def test_the_order_of_roads_does_not_matter(roads):
    ends = []
    for order in itertools.permutations(roads):
        value = NOTHING
        for road in order:
            value = join(value, road)
        ends.append(value)
    assert all(end == ends[0] for end in ends)


def test_a_mixed_value_counts_as_what_its_roads_say():
    device = Value(Kind.DEVICE_TENSOR, certain=True)
    cpu = Value(Kind.CPU_TENSOR, certain=True)
    assert join(device, NUMBER).kind is Kind.DEVICE_TENSOR
    assert not join(device, NUMBER).certain
    assert join(device, cpu).kind is Kind.UNKNOWN
    assert join(join(device, cpu), device).kind is Kind.UNKNOWN
    assert join(join(device, cpu), NUMBER).kind is Kind.UNKNOWN


BRANCHES = """
import torch
import torch_xla.core.xla_model as xm

def train(loader, optimizer, mode):
    device = xm.xla_device()
    for x in loader:
        if mode == 1:
            {first}
        elif mode == 2:
            {second}
        else:
            {third}
        total = y.item()
        xm.optimizer_step(optimizer, barrier=True)
"""
_ROADS = ("y = torch.zeros(3)", "y = torch.ones(3, device=device)", "y = x.to(device)")


@pytest.mark.parametrize("order", list(itertools.permutations(_ROADS)))
def test_branches_in_another_order_are_judged_alike(order):
    first, second, third = order
    program = BRANCHES.format(first=first, second=second, third=third)
    codes = {code for _, code in found(program)}
    assert "XLA101" not in codes


@pytest.mark.parametrize("order", list(itertools.permutations(["y = 0", *_ROADS[1:]])))
def test_a_number_on_one_road_does_not_hide_the_device_on_the_others(order):
    first, second, third = order
    program = BRANCHES.format(first=first, second=second, third=third)
    assert "XLA101" in {code for _, code in found(program)}


def test_what_a_break_carries_out_of_the_loop_is_joined():
    """The last ``break`` in the text is not the only way out."""
    program = """
    import torch
    import torch_xla.core.xla_model as xm

    def train(loader, optimizer):
        device = xm.xla_device()
        for batch in loader:
            for part in batch:
                y = part.to(device)
                if part.shape[0] == 1:
                    break
                y = 0
                if part.shape[0] == 2:
                    break
            total = y.item()
            xm.optimizer_step(optimizer, barrier=True)
    """
    assert "XLA101" in {code for _, code in found(program)}


def test_a_function_that_calls_itself_returns_what_its_other_roads_return():
    program = """
    import torch
    import torch_xla.core.xla_model as xm

    def halve(x, n):
        if n > 0:
            return halve(x / 2, n - 1)
        return x

    def train(loader, optimizer):
        device = xm.xla_device()
        for batch in loader:
            loss = halve(batch.to(device), 3)
            print(loss.item())
            xm.optimizer_step(optimizer, barrier=True)
    """
    assert "XLA101" in {code for _, code in found(program)}


def test_attributes_that_swing_come_to_an_end():
    """Each round flips what the next one sees: widening ends it."""
    program = """
    import torch
    import torch_xla.core.xla_model as xm

    class A:
        def first(self):
            self.x = self.y
            self.y = [self.x, self.z]
        def second(self):
            self.z = (self.y, self.x)
            self.x = torch.zeros(3).to(xm.xla_device())
            self.y = {"a": self.z}

    a = A()
    a.first(); a.second(); a.first()
    """
    assert [code for _, code in found(program)] == ["XLA802"]
