"""Methods of models are step code, also of classes that replace a library's model.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

#: What is wrong, in the spellings that programs have for it.
FAULTS = {
    "subclass of transformers model": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import LlavaForConditionalGeneration
class XLALlava(LlavaForConditionalGeneration):
    def _merge(self, image_features, inputs_embeds, input_ids, attention_mask, labels):
        n, p, d = image_features.shape
        b, s = input_ids.shape
        left = not torch.sum(input_ids[:, -1] == torch.tensor(self.pad_token_id))  # !XLA104
        mask = input_ids == self.config.image_token_index
        longest = (torch.sum(mask, dim=-1).max() * (p - 1)) + s
        rows, cols = torch.where(input_ids != self.config.image_token_index)  # !XLA201
        out = torch.zeros(b, longest, d, device=inputs_embeds.device)  # !XLA201
        out[rows, cols] = inputs_embeds[rows, cols]
        todo = torch.all(out == 0, dim=-1)
        if todo.sum() != n:  # !XLA104
            raise ValueError("no")
        out[todo] = image_features.reshape(-1, d)  # !XLA204
        return out
model = XLALlava({}).to(xm.xla_device())
""",
    "parameters that are moved and called": """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
def train(encoder, critic, loader, optimizer):
    device = torch_xla.device()
    encoder.to(device)
    critic = critic.to(device)
    for images, _ in pl.MpDeviceLoader(loader, device):
        mean, scale = encoder(images)
        posterior = torch.distributions.Normal(mean, scale)  # !XLA109
        score = critic(posterior.rsample())
        score.backward()
        optimizer.step()
        print(score.item())  # !XLA101
""",
    "attributes that are moved and called": """\
import torch_xla
import torch_xla.core.xla_model as xm
class Runner:
    def __init__(self, encoder, features, adam, data):
        self.device = torch_xla.device()
        self.encoder = encoder.to(self.device)
        self.features = features
        self.features.to(self.device)
        self.adam, self.data = adam, data
    def fit(self):
        for x, y in self.data:
            mean, scale = self.encoder(self.features(x.to(self.device)))
            gap = (mean - scale).pow(2).mean()
            gap.backward()
            xm.optimizer_step(self.adam)
            print(gap.item())  # !XLA101
""",
    "agent whose networks are moved where they are kept": """\
import torch
import torch_xla
class Agent:
    def __init__(self, policy, critic, data):
        self.device = torch_xla.device()
        self.pi, self.data = policy.to(self.device), data
        self.opt = torch.optim.Adam([*self.pi.parameters()], lr=1e-3)
    @torch.no_grad()
    def act(self, seen):
        seen = torch.as_tensor(seen, device=self.device)
        choice = torch.distributions.Categorical(logits=self.pi(seen))  # !XLA109
        return choice.sample().cpu().numpy()  # !XLA101
    def learn(self, env, steps):
        seen = env.reset()
        for step in range(steps):
            seen = env.step(self.act(seen))
            loss, facts = self.loss([part.to(self.device) for part in self.data[step]])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            torch_xla.sync()
    def loss(self, batch):
        seen, action, gain = batch
        chosen = self.pi(seen).log_softmax(-1).gather(1, action)
        kl = (chosen.exp() * chosen).sum()
        if kl > 0.2:  # !XLA104
            return kl, {"kl": float(kl)}  # !XLA102
        return -(chosen * gain).mean(), {"kl": kl.item()}  # !XLA101
""",
    "prepared by Accelerate, whatever made it": """\
import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from project import build
def main(args):
    accelerator = Accelerator()
    model, opt, dl = build(args)
    model, opt, dl = accelerator.prepare(model, opt, dl)
    for step, batch in enumerate(dl):
        loss = model(**batch).loss
        accelerator.backward(loss)
        opt.step()
        opt.zero_grad()
        kept = batch["labels"][batch["labels"] != -100]  # !XLA202
""",
    "module called by hot loop": """\
import torch
from torch import nn
import torch_xla.core.xla_model as xm
class Pool(nn.Module):
    def forward(self, x, lengths):
        m = int(lengths.max())  # !XLA102
        return x[:, :m].mean(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = Pool()
    def forward(self, x, lengths):
        h = self.pool(x, lengths)
        if h.isnan().any():  # !XLA104
            raise ValueError
        return h[h[:, 0] > 0]  # !XLA202
def train(loader, optim):
    device = xm.xla_device()
    model = Net().to(device)
    for x, n in loader:
        loss = model(x.to(device), n.to(device)).mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
""",
    "module of helper method": """\
import torch
from torch import nn
import torch_xla.core.xla_model as xm
class Net(nn.Module):
    def forward(self, x):
        return self.route(x)
    def route(self, h):
        idx = h.nonzero()  # !XLA201
        return h[idx]
""",
    "module base in file": """\
import torch
from torch import nn
import torch_xla.core.xla_model as xm
class Base(nn.Module):
    pass
class Net(Base):
    def forward(self, x):
        return x.masked_select(x > 0)  # !XLA201
""",
    "modulelist blocks": """\
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
class Block(nn.Module):
    def forward(self, h):
        return h[h.sum(-1) > 0]  # !XLA202
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x
""",
    "loss module": """\
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
class DiceLoss(nn.Module):
    def forward(self, pred, target):
        keep = target != 255
        pred = pred[keep]  # !XLA202
        return pred.mean()
""",
    "timm subclass": """\
import torch
import torch_xla.core.xla_model as xm
from timm.models.vision_transformer import VisionTransformer
class MaeViT(VisionTransformer):
    def forward_features(self, x):
        x = self.patch_embed(x)
        if x.max() > 10:  # !XLA104
            x = x / 2
        return x
""",
    "diffusers mixin": """\
import torch
import torch_xla.core.xla_model as xm
from diffusers import ModelMixin, ConfigMixin
class Net(ModelMixin, ConfigMixin):
    def forward(self, sample, timestep):
        if timestep > 500:  # !XLA104
            sample = sample * 2
        return sample
""",
    "torchvision resnet": """\
import torch
import torch_xla.core.xla_model as xm
import torchvision
class R(torchvision.models.ResNet):
    def _forward_impl(self, x):
        x = self.conv1(x)
        n = x.sum().item()  # !XLA101
        return self.fc(x) * n
""",
    "lightning forward nested": """\
import torch
import pytorch_lightning as pl
class Lit(pl.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        self.acc(out, y)
        m = y > 0
        loss = out[m].mean()  # !XLA202
        print(loss.item())  # !XLA101
        return loss
trainer = pl.Trainer(accelerator="tpu", devices=8)
""",
    "lightning shared step": """\
import torch
import lightning as L
class Lit(L.LightningModule):
    def step(self, batch):
        x, y = batch
        loss = self.net(x).mean()
        return loss, loss.item()  # !XLA101
    def training_step(self, batch, batch_idx):
        return self.step(batch)[0]
    def validation_step(self, batch, batch_idx):
        self.step(batch)
L.Trainer(accelerator="tpu").fit(Lit())
""",
    "trainer subclass compute loss": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        out = model(**inputs)
        loss = out.logits[labels != -100].mean()  # !XLA202
        print(loss.item())  # !XLA101
        return loss
""",
    "model function style": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import PreTrainedModel
class M(PreTrainedModel):
    def forward(self, input_ids=None, attention_mask=None, labels=None):
        h = self.embed(input_ids)
        if labels is not None:
            keep = labels != -100
            return h[keep].mean()  # !XLA202
        return h
""",
    "optional params": """\
import torch
from torch import nn
from typing import Optional
import torch_xla.core.xla_model as xm
class M(nn.Module):
    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None):
        if mask is not None:
            x = x[mask]  # !XLA202
        return x
""",
    "jagged list": """\
import torch
from torch import nn
import torch_xla.core.xla_model as xm
class M(nn.Module):
    def forward(self, x, lengths):
        outs = []
        for i, n in enumerate(lengths.tolist()):  # !XLA101
            outs.append(x[i, :n].mean(0))
        return torch.stack(outs)
""",
}

#: What looks like it and is right.
HEALTHY = {
    "weights of a library's model are loaded and checked once": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import LlamaForCausalLM
class Mine(LlamaForCausalLM):
    def load_weights(self, path, scale):
        state = torch.load(path)
        if scale.shape[0] and state["w"].max() > 3:
            print(state["w"].max().item())
    def set_scale(self, scale):
        self.scale = torch.abs(scale)
        if self.scale > 3:
            raise ValueError
    def generate_ids(self, x):
        return torch.where(x > 0, x, 0)
""",
    "numbers and flags of forward": """\
import torch
from torch import nn
from typing import Optional
import torch_xla.core.xla_model as xm
class Net(nn.Module):
    def forward(self, x, start: int, scale: Optional[float] = None, images=None, use_cache=None):
        if start > 0 and scale is not None and scale > 1:
            x = x * scale
        if images:
            x = x + len(images)
        if use_cache:
            return x, torch.zeros(x.shape[0], start, device=x.device)
        return torch.zeros(x.size(0), x.size(1), device=x.device)
""",
    "optional tensors that are only asked for None": """\
import torch
from torch import nn
import torch_xla.core.xla_model as xm
class Net(nn.Module):
    def forward(self, input_ids, attention_mask=None, labels=None):
        h = torch.relu(input_ids)
        if attention_mask is not None:
            h = h.masked_fill(attention_mask == 0, 0.0)
        if labels is None:
            return h
        return torch.where(labels != -100, h, 0).sum() / (labels != -100).sum()
""",
    "a Trainer that hands on": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        out = model(**inputs)
        loss = torch.nn.functional.cross_entropy(out.logits, labels, ignore_index=-100)
        return (loss, out) if return_outputs else loss
""",
    "a class that is no model": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import AutoTokenizer, LlamaConfig
class Config(LlamaConfig):
    def forward_size(self, x):
        return x.max().item() if torch.is_tensor(x) else x
""",
    "sizes from shapes and from numbers of the host": """\
import torch
from torch import nn
import torch_xla.core.xla_model as xm
class Net(nn.Module):
    def forward(self, x, T):
        b, n, d = x.shape
        longest = max(n, 128)
        return torch.zeros(b, longest, device=x.device), torch.arange(T), x.view(b, n * d)
""",
    "what kind of tensor it is, the host knows": """\
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
class MyTrainer(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        for key, data in inputs.items():
            if torch.is_floating_point(data) or torch.is_complex(data):
                inputs[key] = data.to(torch.bfloat16)
        return model(**inputs).loss
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_each_spelling(name):
    program = FAULTS[name]
    expected = marks(program)
    assert expected
    assert expected <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name):
    assert codes(HEALTHY[name]) == []
