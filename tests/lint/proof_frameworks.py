"""Invented programs of frameworks, FSDP and SPMD, written as of old: fixed, they must train.

Most do not run as they are found, so they are held to numbers from elsewhere: the same training in
plain torch on the CPU.
"""

#: FSDP, whose gradients are reduced in the backward pass, in a group meant for GPUs.
SHARDED = """
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP


def run(index):
    dist.init_process_group("nccl", rank=index, world_size=8)
    device = torch_xla.device()
    torch.manual_seed(0)
    model = FSDP(torch.nn.Linear(4, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    # Other data on each core.
    batches = [torch.full((4, 4), 0.5 * step + xr.global_ordinal()) for step in range(4)]
    for images in pl.MpDeviceLoader(batches, device):
        optimizer.zero_grad()
        loss = model(images).pow(2).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        losses.append(loss.detach())
    total = torch.stack(losses)
    dist.all_reduce(total)
    xm.master_print("losses", [round(value, 4) for value in total.tolist()], dist.get_world_size())


if __name__ == "__main__":
    torch_xla.launch(run)
"""

#: One process, its devices sharing each batch.
SPMD = """
import os

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

os.environ["XLA_USE_SPMD"] = "1"
device = torch_xla.device()
devices = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(devices), (devices,), ("data",))
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
batches = torch.randn(4, 8, 4)
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for images in batches:
    images = images.to(device)
    xs.mark_sharding(images, mesh, ("data", None))
    optimizer.zero_grad()
    loss = model(images).pow(2).mean()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    losses.append(loss.detach())
print("losses", [round(value, 4) for value in torch.stack(losses).tolist()])
print("devices", devices, xr.is_spmd())
"""

#: Lightning as in version 1.5, which did the step protocol by hand.
LIGHTNING = """
import lightning.pytorch as pl
import torch
import torch_xla.core.xla_model as xm
from lightning.pytorch.callbacks import EarlyStopping, XLAStatsMonitor
from torch.utils.data import DataLoader, TensorDataset


def data(rows):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
    return DataLoader(TensorDataset(x, 3 * x[:, :1]), batch_size=4, drop_last=True)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        xm.mark_step()
        return {"loss": loss}

    def training_epoch_end(self, outputs):
        self.mean = torch.stack([o["loss"] for o in outputs]).mean()

    def validation_step(self, batch, index):
        x, y = batch
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), y)}

    def validation_epoch_end(self, outputs):
        mean = torch.stack([o["loss"] for o in outputs]).mean()
        self.log("val_loss", mean, sync_dist=True)
        kept = float(mean)
        xm.master_print("kept", len(outputs), round(kept, 4))

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer_closure()
        xm.optimizer_step(optimizer)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    pl.seed_everything(0)
    trainer = pl.Trainer(
        tpu_cores=2,
        precision=16,
        progress_bar_refresh_rate=0,
        weights_summary=None,
        checkpoint_callback=False,
        max_epochs=2,
        logger=False,
        callbacks=[EarlyStopping("val_loss"), XLAStatsMonitor()],
    )
    net = Net()
    trainer.fit(net, data(48), data(16))
    print("losses", round(float(trainer.callback_metrics["val_loss"]), 4))
"""

#: A Trainer of transformers with arguments of version 4, and an evaluation of Accelerate 0.15.
TRAINER = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from accelerate import Accelerator, DistributedType
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.words = torch.randint(0, 50, (rows, 12), generator=torch.Generator().manual_seed(rows))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, at):
        words = self.words[at]
        return {"input_ids": words, "attention_mask": torch.ones_like(words),
                "labels": int(words[0] > 25)}


def main(index):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=16)
    arguments = TrainingArguments(
        "out", num_train_epochs=1, per_device_train_batch_size=4, tpu_num_cores=8, logging_steps=1,
        save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=0.01,
        gradient_checkpointing=True, group_by_length=True,
    )
    model = BertForSequenceClassification(config)
    trainer = Trainer(model, arguments, train_dataset=Data(50))
    trainer.train()
    xm.master_print("steps", trainer.state.global_step)
    accelerator = Accelerator(
        split_batches=True, fp16=False, logging_dir="logs", dispatch_batches=False
    )
    loader = torch.utils.data.DataLoader(Data(16), batch_size=8, drop_last=True)
    sizes = [len(batch["labels"]) for batch in accelerator.prepare(loader)]
    if accelerator.distributed_type == DistributedType.TPU:
        accelerator.print("sizes", sizes)


if __name__ == "__main__":
    torch_xla.launch(main)
"""
