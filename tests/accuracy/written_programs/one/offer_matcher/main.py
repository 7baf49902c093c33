import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from datasets import load_dataset
from transformers import AutoTokenizer, Trainer, TrainerCallback, TrainingArguments, set_seed

from matcher import OfferEncoder, PairScorer
from warmup import warm_up


class Ledger(TrainerCallback):
    """One line for each evaluation; the dashboards read it."""

    def __init__(self, path):
        self.path, self.rows = Path(path), []

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.rows.append({"step": state.global_step, **{k: round(v, 5) for k, v in (metrics or {}).items() if isinstance(v, float)}})
        self.path.write_text(json.dumps(self.rows, indent=1))

    def on_train_end(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        best = max(self.rows, key=lambda row: row.get("eval_f1", 0.0), default=None)
        with open(self.path.with_suffix(".best.json"), "w") as f:
            json.dump(best, f)


class PairTrainer(Trainer):
    def __init__(self, *args, flip=True, **kwargs):
        super().__init__(*args, **kwargs)
        self.flip = flip

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        left, right, labels = inputs["left"], inputs["right"], inputs["labels"]
        out = model(left, right, labels)
        loss = out["loss"]
        if model.training and self.flip:
            back = model(right, left, labels)
            loss = 0.5 * (loss + back["loss"])
        return (loss, out) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        with torch.no_grad():
            loss, out = self.compute_loss(model, inputs, return_outputs=True)
        return loss.detach(), out["logits"], inputs["labels"]


class PairCollator:
    def __init__(self, tokenizer, longest=256):
        self.tokenizer, self.longest = tokenizer, longest

    def side(self, rows, name):
        texts = [row[name] for row in rows]
        return dict(self.tokenizer(texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt"))

    def __call__(self, rows):
        return {"left": self.side(rows, "a"), "right": self.side(rows, "b"), "labels": torch.tensor([int(r["same"]) for r in rows])}


def f1(prediction):
    guess, truth = prediction.predictions.argmax(-1), prediction.label_ids
    both = np.sum((guess == 1) & (truth == 1))
    return {"f1": float(2 * both / max(1, np.sum(guess == 1) + np.sum(truth == 1)))}


def settings(opts):
    return TrainingArguments(
        output_dir=opts.out, num_train_epochs=4, per_device_train_batch_size=32, per_device_eval_batch_size=32,
        learning_rate=2e-5, optim="adamw_torch", dataloader_drop_last=True, dataloader_num_workers=4,
        logging_steps=1, eval_strategy="epoch", save_strategy="no", report_to="none", seed=opts.seed,
        remove_unused_columns=False, label_names=["labels"])


def train(index, opts):
    set_seed(opts.seed)
    tokenizer = AutoTokenizer.from_pretrained(opts.base)
    encoder = OfferEncoder(opts.base).to(torch_xla.device())
    if opts.warm and os.path.exists(opts.warm):
        encoder.load_state_dict(torch.load(opts.warm, map_location="cpu"))
    elif opts.warm_epochs > 0:
        encoder = warm_up(encoder, tokenizer, opts)
    pairs = load_dataset("csv", data_files={"train": opts.pairs, "test": opts.test})
    set_seed(opts.seed)
    trainer = PairTrainer(PairScorer(encoder), settings(opts), data_collator=PairCollator(tokenizer), compute_metrics=f1,
                          train_dataset=pairs["train"], eval_dataset=pairs["test"], callbacks=[Ledger(f"{opts.out}/ledger.json")])
    trainer.train()
    xm.rendezvous("trained")
    if (scores := trainer.evaluate()) and trainer.is_world_process_zero():
        print({k: v for k, v in scores.items() if k.startswith("eval_")})


def main():
    p = argparse.ArgumentParser()
    for name, default in dict(base="bert-base-uncased", offers="offers.csv", pairs="pairs.csv", test="test.csv", out="matcher").items():
        p.add_argument(f"--{name}", default=default)
    p.add_argument("--warm", help="a state of the encoder that warm_up has written")
    p.add_argument("--keep-warm")
    p.add_argument("--warm-epochs", type=int, default=2)
    p.add_argument("--warm-batch", type=int, default=32)
    p.add_argument("--warm-lr", type=float, default=1e-5)
    p.add_argument("--seed", type=int, default=77)
    opts = p.parse_args()
    os.makedirs(opts.out, exist_ok=True)
    xmp.spawn(train, args=(opts,))


if __name__ == "__main__":
    main()
