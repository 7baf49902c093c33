"""Accelerate: prepared objects, gathered metrics, fixed lengths."""

import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator, notebook_launcher
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_scheduler

from project.data import reviews

NAME = "distilbert-base-uncased"


def training_function(epochs=3, lr=2e-5):
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(NAME)

    def collate(rows):
        batch = tokenizer(
            [row["text"] for row in rows],
            padding="max_length",
            max_length=256,
            truncation=True,
            return_tensors="pt",
        )
        batch["attention_mask"] = batch["attention_mask"][:, None, None, :].bool()
        batch["labels"] = torch.tensor([row["label"] for row in rows])
        return batch

    train_loader = DataLoader(
        reviews("train"), batch_size=32, shuffle=True, collate_fn=collate, drop_last=True
    )
    model = AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=2)
    model = model.to(accelerator.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    scheduler = get_scheduler("linear", optimizer, 100, len(train_loader) * epochs)
    model, optimizer, train_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, scheduler
    )
    for epoch in range(epochs):
        model.train()
        total = torch.zeros((), device=accelerator.device)
        for batch in train_loader:
            outputs = model(**batch)
            loss = outputs.loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.detach()
        mean = accelerator.gather(total).mean().item() / len(train_loader)
        accelerator.print(f"epoch {epoch}: {mean:.3f}")
    accelerator.wait_for_everyone()
    accelerator.save_model(model, "out")
    xm.master_print("saved")


if __name__ == "__main__":
    notebook_launcher(training_function)
