"""Two phases: MLM on the client's own text, then the classifier with the Trainer."""
import argparse
import os

import torch
import torch.nn.functional as F
import torch_xla.distributed.xla_multiprocessing as xmp
from datasets import load_dataset
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments,
                          default_data_collator, set_seed)

from continue_pretraining import pretrain

RESULTS = {}


class ConfidenceTrainer(Trainer):
    """Cross entropy with a bonus for entropy while the net is still sure of itself."""

    def __init__(self, *args, penalty=0.1, ceiling=4.0, window=64, **kwargs):
        super().__init__(*args, **kwargs)
        self.penalty, self.ceiling = penalty, ceiling
        self.recent = torch.zeros(window, device=self.args.device)
        self.seen = 0

    def _confidence(self, logits):
        log_p = F.log_softmax(logits.float(), dim=-1)
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        return log_p, entropy

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        log_p, entropy = self._confidence(outputs.logits)
        loss = F.nll_loss(log_p, labels)
        if model.training:
            self.recent[self.seen % len(self.recent)] = entropy.detach()
            self.seen += 1
            if entropy < self.ceiling / 10:
                loss = loss - self.penalty * entropy
        return (loss, outputs) if return_outputs else loss


def encode(tokenizer, length):
    def apply(rows):
        return tokenizer(rows["text"], truncation=True, padding="max_length", max_length=length)
    return apply


def finetune(index, opts):
    set_seed(opts.seed)
    tokenizer = AutoTokenizer.from_pretrained(opts.base)
    data = load_dataset("json", data_files={"train": opts.train, "dev": opts.dev})
    data = data.map(encode(tokenizer, 192), batched=True, remove_columns=["text"])
    net = AutoModelForSequenceClassification.from_pretrained(opts.base, num_labels=opts.queues)
    weights = torch.load(opts.mlm_path, map_location="cpu")
    net.load_state_dict({k: v for k, v in weights.items() if not k.startswith("cls.")}, strict=False)
    arguments = TrainingArguments(
        output_dir=opts.out, per_device_train_batch_size=opts.batch, per_device_eval_batch_size=opts.batch,
        num_train_epochs=3, learning_rate=3e-5, optim="adamw_torch", dataloader_drop_last=True,
        dataloader_num_workers=2, eval_strategy="epoch", logging_steps=100, save_strategy="no", report_to=[], seed=opts.seed)

    def accuracy(prediction):
        scores, labels = prediction
        return {"accuracy": float((scores.argmax(-1) == labels).mean())}

    trainer = ConfidenceTrainer(net, arguments, data_collator=default_data_collator, train_dataset=data["train"],
                                eval_dataset=data["dev"], processing_class=tokenizer, compute_metrics=accuracy)
    trainer.train()
    RESULTS.update(trainer.evaluate())
    trainer.save_model(os.path.join(opts.out, "final"))


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="bert-base-cased")
    p.add_argument("--tokens", default="tokens.bin")
    p.add_argument("--train", default="train.jsonl")
    p.add_argument("--dev", default="dev.jsonl")
    p.add_argument("--queues", type=int, default=23)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--mlm-epochs", type=int, default=2)
    p.add_argument("--mlm-lr", type=float, default=1e-4)
    p.add_argument("--mask-share", type=float, default=0.15)
    p.add_argument("--mlm-path", default="mlm.pt")
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--out", default="router")
    p.add_argument("--single", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    opts = parse()
    cores = 1 if opts.single else 4
    if not os.path.exists(opts.mlm_path):
        xmp.spawn(pretrain, args=(opts,), nprocs=cores)
    xmp.spawn(finetune, args=(opts,), nprocs=cores)
    print("accuracy on dev:", RESULTS.get("eval_accuracy"))
