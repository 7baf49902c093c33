"""The Trainer of transformers."""

import tempfile

import torch
import torch_xla
from common import tokens
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.data = tokens()

    def __len__(self):
        return len(self.data)

    def __getitem__(self, at):
        ids, label = self.data[at]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": label}


def main(index):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=4,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = TrainingArguments(
        tempfile.gettempdir(),
        num_train_epochs=1,
        per_device_train_batch_size=8,
        report_to=[],
        disable_tqdm=True,
        dataloader_drop_last=True,
        learning_rate=0.01,
        optim="adamw_torch",
        save_strategy="no",
        logging_strategy="no",
        # By default the Trainer multiplies the mean that this model gives by the number of cores.
        average_tokens_across_devices=False,
    )
    Trainer(BertForSequenceClassification(config), arguments, train_dataset=Rows()).train()


if __name__ == "__main__":
    torch_xla.launch(main)
