#!/usr/bin/env python
"""Named entities in clinical letters, with Accelerate.

    accelerate launch --tpu --num_processes 8 ner_accelerate.py --letters data/letters
"""
import argparse
import os
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    get_cosine_schedule_with_warmup,
)

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

TAGS = ["O", "B-DRUG", "I-DRUG", "B-DOSE", "I-DOSE", "B-DX", "I-DX"]


@dataclass(frozen=True)
class Settings:
    letters: str
    out: str = "ner-out"
    checkpoint: str = "dmis-lab/biobert-base-cased-v1.2"
    length: int = 256
    batch: int = 32
    accumulate: int = 2
    lr: float = 4e-5
    epochs: int = 4
    warmup: float = 0.1
    every: int = 100
    seed: int = 77


class TalkMixin:
    """Lines and numbers from the main process."""

    def say(self, text):
        self.accelerator.print(text)

    def note(self, values, step):
        self.accelerator.log(values, step=step)


class CountMixin:
    """Hits over all cores, kept on the device until somebody asks."""

    def restart(self):
        device = self.accelerator.device
        self.hits = torch.zeros((), device=device)
        self.seen = torch.zeros((), device=device)

    def count(self, guess, truth):
        real = (truth != -100).float()
        self.hits += (guess.eq(truth) * real).sum()
        self.seen += real.sum()

    def ratio(self):
        for part in (self.hits, self.seen):
            xm.all_reduce(xm.REDUCE_SUM, part)
        return (self.hits / self.seen.clamp_min(1.0)).item()


class TrainStep:
    def __init__(self, model, optimizer, schedule, accelerator):
        self.model, self.optimizer = model, optimizer
        self.schedule, self.accelerator = schedule, accelerator

    def __call__(self, batch):
        with self.accelerator.accumulate(self.model):
            loss = self.model(**batch).loss
            self.accelerator.backward(loss)
            if self.accelerator.sync_gradients:
                self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
        return {"loss": loss.detach(), "lr": self.schedule.get_last_lr()[0]}


class EntityErrors:
    """How many of the places that are an entity got another tag, by tag."""

    def __init__(self, tags):
        self.tags = tags
        self.wrong = None

    def __call__(self, logits, labels):
        entity = labels > 0
        guess, truth = logits.argmax(-1)[entity], labels[entity]
        missed = guess.ne(truth)
        add = torch.stack([(missed & truth.eq(t)).sum() for t in range(len(self.tags))])
        self.wrong = add if self.wrong is None else self.wrong + add


class Session(TalkMixin, CountMixin):
    def __init__(self, settings):
        self.settings = settings
        self.accelerator = Accelerator(
            gradient_accumulation_steps=settings.accumulate, log_with="tensorboard",
            project_dir=settings.out,
        )
        set_seed(settings.seed)
        torch_xla.manual_seed(settings.seed + xr.global_ordinal())
        self.tokenizer = AutoTokenizer.from_pretrained(settings.checkpoint)
        self.model = AutoModelForTokenClassification.from_pretrained(settings.checkpoint, num_labels=len(TAGS))
        self.prepare()

    def prepare(self):
        s = self.settings
        with self.accelerator.main_process_first():
            data = load_from_disk(s.letters).map(
                self.align, batched=True, remove_columns=["words", "tags"], desc="align", load_from_cache_file=True
            )
        pad = DataCollatorForTokenClassification(self.tokenizer)
        train = DataLoader(
            data["train"], s.batch, shuffle=True, collate_fn=pad, num_workers=2, drop_last=True
        )
        valid = DataLoader(data["validation"], s.batch, collate_fn=pad, num_workers=2)
        decay = [p for n, p in self.model.named_parameters() if p.ndim > 1]
        rest = [p for n, p in self.model.named_parameters() if p.ndim <= 1]
        optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=s.lr
        )
        total = s.epochs * len(train) // s.accumulate
        schedule = get_cosine_schedule_with_warmup(optimizer, int(s.warmup * total), total)
        self.model, self.optimizer, self.train, self.valid, self.schedule = self.accelerator.prepare(
            self.model, optimizer, train, valid, schedule
        )

    def align(self, rows):
        enc = self.tokenizer(rows["words"], is_split_into_words=True, truncation=True, max_length=self.settings.length)
        enc["labels"] = [
            [-100 if w is None else tags[w] for w in enc.word_ids(i)] for i, tags in enumerate(rows["tags"])
        ]
        return enc

    def fit(self):
        s = self.settings
        self.accelerator.init_trackers("ner")
        step_fn = TrainStep(self.model, self.optimizer, self.schedule, self.accelerator)
        done = 0
        for epoch in range(s.epochs):
            self.model.train()
            spent = 0.0
            for batch in self.train:
                out = step_fn(batch)
                spent += float(out["loss"]) * s.batch
                done += 1
                if done % s.every == 0:
                    self.note({"lr": out["lr"]}, step=done)
            mean = spent / len(self.train.dataset)
            score, wrong = self.evaluate()
            self.say(f"epoch {epoch} loss {mean:.4f} token accuracy {score:.4f}")
            self.say("  ".join(f"{tag}:{n}" for tag, n in zip(TAGS, wrong)))
            self.keep(epoch)
        self.accelerator.end_training()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        self.restart()
        errors = EntityErrors(TAGS)
        for batch in self.valid:
            logits = self.model(**batch).logits
            self.count(logits.argmax(-1), batch["labels"])
            errors(logits, batch["labels"])
        wrong = xm.all_reduce(xm.REDUCE_SUM, errors.wrong)
        return self.ratio(), wrong.tolist()

    def keep(self, epoch):
        self.accelerator.wait_for_everyone()
        bare = self.accelerator.unwrap_model(self.model)
        where = os.path.join(self.settings.out, f"epoch{epoch}")
        if not self.accelerator.is_main_process:
            return
        os.makedirs(where, exist_ok=True)
        weights = {k: v.cpu() for k, v in bare.state_dict().items()}
        bare.save_pretrained(where, state_dict=weights)
        self.tokenizer.save_pretrained(where)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--letters", required=True)
    p.add_argument("--epochs", type=int, default=Settings.epochs)
    p.add_argument("--lr", type=float, default=Settings.lr)
    Session(Settings(**vars(p.parse_args()))).fit()


if __name__ == "__main__":
    main()
