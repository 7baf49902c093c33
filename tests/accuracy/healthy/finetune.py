"""The Trainer of transformers, started on each core."""

import torch_xla
import torch_xla.core.xla_model as xm
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)


def train(index):
    set_seed(0)
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="eager")
    dataset = load_dataset("wikitext", "wikitext-2-raw-v1", split="train")
    dataset = dataset.map(
        lambda rows: tokenizer(rows["text"], padding="max_length", max_length=512, truncation=True),
        batched=True,
    )
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=5e-5,
        logging_steps=200,
        save_steps=1000,
        optim="adamw_torch",
        dataloader_drop_last=True,
        bf16=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    xm.master_print("done")


if __name__ == "__main__":
    torch_xla.launch(train)
