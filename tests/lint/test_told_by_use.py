"""Values that nobody can follow: what is asked of them says that they are on the device.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import found, marks
from xladoctor.lint import engine
from xladoctor.lint.sources import Source

AGENT = """\
import torch
import torch_xla.core.xla_model as xm
from world import Model, observe


class Agent:
    def __init__(self, config):
        self.device = xm.xla_device()
        self.model = Model(config).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def fit(self, loader, steps):
        for batch in loader:
            self.update(observe(batch))

    def update(self, seen):
        loss = self.model(seen.to(self.device)).mean()
        {line}
        loss.backward()
        xm.optimizer_step(self.optimizer, barrier=True)
        self.optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "line",
    [
        "if torch.isfinite(seen.reward).all(): self.kept = loss  # !XLA104",
        "if not torch.isfinite(seen.reward).all(): return  # !XLA104",
        "if torch.isnan(seen.surprise()).any(): self.kept = loss  # !XLA104",
        "if seen.reward.isnan().any(): self.kept = loss  # !XLA104",
        "self.bad = torch.isnan(seen.reward).sum().item()  # !XLA101",
        "self.right = seen.reward[~torch.isnan(seen.reward)]  # !XLA202",
        "self.kept = seen.reward[loss > 0]  # !XLA202",
        "self.seen[loss > 0] = 0  # !XLA204",
        "self.level = self.model.scores[2].item()  # !XLA101",
        # Numbers and arrays are asked otherwise, and a mask of the host chooses from anything.
        "if math.isnan(seen.reward): self.kept = loss",
        "if np.isnan(seen.reward).any(): self.kept = loss",
        "if torch.isnan(torch.zeros(4)).any(): self.kept = loss",
        "if seen.frame.isnan(skipna=True): self.kept = loss",
        "self.kept = seen.reward[seen.places]",
        "self.level = self.model.config.levels[2].item()",
        "self.level = self.model.scores[2]",
    ],
)
def test_tensors_that_come_from_elsewhere(line):
    program = AGENT.format(line=line)
    codes = {"XLA101", "XLA104", "XLA202", "XLA204"}
    told = {(row, code) for row, code in found(program) if code in codes}
    assert told == {one for one in marks(program) if one[1] in codes}


def test_what_is_taken_for_a_device_tensor_is_said():
    line = "if torch.isfinite(seen.reward).all(): self.kept = loss"
    result = engine.lint(Source("agent.py", AGENT.format(line=line)))
    [item] = [one for one in result.findings if one.code == "XLA104"]
    assert "only tensors are asked this: taken for one on the device" in [
        place.note for place in item.related
    ]
    known = AGENT.format(line="if torch.isfinite(loss).all(): self.kept = loss")
    [item] = [
        one for one in engine.lint(Source("agent.py", known)).findings if one.code == "XLA104"
    ]
    assert not any("taken for" in str(place.note) for place in item.related)


CHUNKS = """\
import torch
import torch_xla.core.xla_model as xm


def train(net, loader, optimizer, device):
    for batch in loader:
        terms = []
        for part in batch.to(device).chunk(4):
            term = net(part).mean()
            {line}
            terms.append(term)
        torch.stack(terms).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)


train(torch.nn.Linear(4, 4).to(xm.xla_device()), load(), build(), xm.xla_device())
"""


@pytest.mark.parametrize(
    ("line", "sized"),
    [
        ("if term.isnan(): continue", True),
        ("if term.isnan(): return None", False),
        ("if term.isnan(): raise ValueError", False),
    ],
)
def test_nothing_is_made_of_a_list_that_a_function_leaves_behind(line, sized):
    assert ("XLA201" in {code for _, code in found(CHUNKS.format(line=line))}) is sized
