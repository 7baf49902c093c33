"""Phase one: masked language modelling on the tickets of the insurer, own loop."""
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from transformers import AutoModelForMaskedLM, AutoTokenizer, get_linear_schedule_with_warmup

from corpus import loaders, mask_tokens


def on_device(loader, device):
    for batch in pl.MpDeviceLoader(loader, device):
        yield batch["input_ids"], batch["labels"]


def build(opts, device):
    net = AutoModelForMaskedLM.from_pretrained(opts.base).to(device)
    net.tie_weights()
    decay, plain = split_parameters(net)
    adamw = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=opts.mlm_lr)
    return net, adamw


def split_parameters(net):
    decay = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim <= 1]
    return decay, plain


def pretrain(index, opts):
    device = torch_xla.device()
    tokenizer = AutoTokenizer.from_pretrained(opts.base)
    net, adamw = build(opts, device)
    collate = mask_tokens(tokenizer.mask_token_id, tokenizer.vocab_size, opts.mask_share)
    train, held, sampler = loaders(opts.tokens, opts.batch, collate, xr.world_size(), xr.global_ordinal())
    total = len(train) * opts.mlm_epochs
    plan = get_linear_schedule_with_warmup(adamw, int(0.06 * total), total)

    def advance(ids, labels):
        out = net(input_ids=ids, labels=labels)
        out.loss.backward()
        adamw.step()
        plan.step()
        adamw.zero_grad()
        return out.loss.detach()

    for epoch in range(opts.mlm_epochs):
        sampler.set_epoch(epoch)
        net.train()
        losses = torch.zeros((), device=device)
        for ids, labels in on_device(train, device):
            losses += advance(ids, labels)
        score = held_out(net, held, device)
        everywhere = xm.mesh_reduce("mlm-held-out", score, np.mean)
        xm.master_print(f"mlm epoch {epoch}: {losses.item() / len(train):.4f} held out {everywhere:.4f}")
    xm.save(net.state_dict(), opts.mlm_path)
    xm.rendezvous("mlm-saved")


def held_out(net, held, device):
    net.eval()
    parts = []
    with torch.no_grad():
        for ids, labels in on_device(held, device):
            parts.append(net(input_ids=ids, labels=labels).loss)
    values = torch.stack(parts).cpu().numpy()
    return np.mean(values)
