"""Continued pretraining on statutes and rulings, one process a host (SPMD).

PJRT_DEVICE=TPU python main.py /data/statutes
"""
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch_xla
import torch_xla.runtime as xr
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, TrainingArguments, set_seed

from calm_trainer import CalmTrainer
from layout import build_mesh, on_host, parameters_in, spread

BASE = "TinyLlama/TinyLlama_v1.1"


class Blocks(Dataset):
    """2048-token rows that were packed beforehand, 0xFFFF where the text is not to be learnt."""

    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i].astype(np.int64)
        labels = row.copy()
        labels[row == 0xFFFF] = -100
        row[row == 0xFFFF] = 0
        return {"input_ids": torch.from_numpy(row), "labels": torch.from_numpy(labels)}


def sets(root):
    root = Path(root)
    return Blocks(root / "train.npy"), Blocks(root / "held_out.npy")


def arguments(out):
    return TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=4,
        learning_rate=2e-5,
        lr_scheduler_type="cosine",
        warmup_steps=200,
        num_train_epochs=1,
        optim="adamw_torch",
        dataloader_drop_last=True,
        dataloader_num_workers=4,
        dataloader_pin_memory=False,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        seed=17,
    )


def main():
    if not xr.using_pjrt():
        sys.exit("set PJRT_DEVICE")
    xr.use_spmd()
    set_seed(17)
    train, held_out = sets(sys.argv[1])
    args = arguments(os.environ.get("OUT", "/tmp/statutes"))
    mesh = build_mesh(int(os.environ.get("TP", "2")))

    model = AutoModelForCausalLM.from_pretrained(BASE).to(torch_xla.device())
    cut, whole = spread(model, mesh)
    everything, learnt = parameters_in(model)
    print(f"{len(cut)} sharded, {len(whole)} whole, {learnt / 1e6:.0f}M of {everything / 1e6:.0f}M learnt")

    trainer = CalmTrainer(model=model, args=args, train_dataset=train, mesh=mesh, beta=0.015)
    before, _ = trainer.perplexity(held_out)
    trainer.train()
    after, tokens = trainer.perplexity(held_out)
    print(f"held out: {before:.2f} -> {after:.2f} over {tokens} tokens")

    weights = on_host(model)
    if xr.process_index() == 0:
        model.config.save_pretrained(args.output_dir)
        torch.save(weights, os.path.join(args.output_dir, "pytorch_model.bin"))


if __name__ == "__main__":
    main()
