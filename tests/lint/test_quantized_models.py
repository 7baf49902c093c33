"""Scripts whose model is loaded in 4 or 8 bits: bitsandbytes has no kernels for XLA devices."""

from __future__ import annotations

import pytest
from rule_helpers import found_in_files

STEPS = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


class Tuner:
    def __init__(self, net):
        self.device = xm.xla_device()
        self.net = net.to(self.device)
        self.adam = torch.optim.AdamW(net.parameters())

    def train(self, loader):
        for batch in loader:
            loss = self.net(batch.to(self.device)).mean()
            loss.backward()
            xm.optimizer_step(self.adam)
            xm.mark_step()


def each(index, net, loader):
    Tuner(net).train(loader)


if __name__ == "__main__":
    torch_xla.launch(each, args=(None, []))
"""
SCRIPT = """\
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from tuner import Tuner

{loads}


def show(net, loader):
    for batch in loader:
        loss = net(batch).loss
        print(loss.item())


tuner = Tuner(net)
show(tuner.net, [])
tuner.train([])
"""
BY_NAME = 'net = AutoModelForCausalLM.from_pretrained("gpt2", {})'
SETTINGS = f"bits = BitsAndBytesConfig({{}})\n{BY_NAME.format('quantization_config=bits')}"
IN_FUNCTION = """\
def load():
    bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    return AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=bits)


"""
UNDER = "if small:\n    bits = BitsAndBytesConfig(load_in_4bit=True)\nelse:\n    bits = None\n"
LOADS = {
    SETTINGS.format("load_in_4bit=True"): False,
    SETTINGS.format("load_in_8bit=True"): False,
    BY_NAME.format("load_in_8bit=True"): False,
    IN_FUNCTION + "net = load()": False,
    SETTINGS.format("load_in_4bit=False"): True,
    SETTINGS.format("load_in_4bit=small"): True,
    UNDER + BY_NAME.format("quantization_config=bits"): True,
    IN_FUNCTION + "net = load() if small else AutoModelForCausalLM.from_pretrained('gpt2')": True,
    IN_FUNCTION + BY_NAME.format("torch_dtype='auto'"): True,
    SETTINGS.format("load_in_4bit=True") + "\nimport torch_xla": True,
}


@pytest.mark.parametrize("loads", LOADS)
def test_a_script_that_loads_its_model_in_few_bits_is_for_gpus(loads, tmp_path):
    files = {"tuner.py": STEPS, "tune.py": SCRIPT.format(loads=loads)}
    told = {code for _, code in found_in_files(tmp_path, files)["tune.py"]}
    assert bool(told) is LOADS[loads], told
