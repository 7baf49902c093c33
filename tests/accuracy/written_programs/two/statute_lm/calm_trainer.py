from collections import defaultdict, deque
from functools import cached_property, partial

import torch
import torch.nn.functional as F
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.distributions import Categorical
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import Trainer, default_data_collator

from layout import rows_of


def shifted(logits, labels):
    return logits[:, :-1].float(), labels[:, 1:]


def token_loss(logits, labels, smoothing):
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=smoothing)
    return loss, labels.ne(-100)


def mean_over(values, mask):
    mask = mask.to(values.dtype)
    return (values * mask).sum() / mask.sum().clamp(min=1)


class CalmTrainer(Trainer):
    """Causal LM training with a penalty on over-confident tokens, batches laid out on a mesh."""

    def __init__(self, *args, mesh=None, beta=0.02, smoothing=0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.mesh = mesh
        self.beta = beta
        self.smoothing = smoothing
        self.recent = defaultdict(partial(deque, maxlen=self.args.logging_steps))

    @cached_property
    def chips(self):
        return xr.world_size()

    @cached_property
    def host(self):
        return xr.process_index(), xr.process_count()

    @cached_property
    def rows_per_host(self):
        _, hosts = self.host
        return self.args.per_device_train_batch_size * self.chips // hosts

    def _loader(self, data, shuffle):
        index, hosts = self.host
        sampler = DistributedSampler(data, num_replicas=hosts, rank=index, shuffle=shuffle, seed=self.args.seed)
        plain = DataLoader(
            data,
            batch_size=self.rows_per_host,
            sampler=sampler,
            collate_fn=default_data_collator,
            num_workers=self.args.dataloader_num_workers,
            drop_last=True,
        )
        return pl.MpDeviceLoader(plain, self.args.device, input_sharding=rows_of(self.mesh))

    def get_train_dataloader(self):
        return self._loader(self.train_dataset, shuffle=True)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(input_ids=inputs["input_ids"], use_cache=False)
        logits, labels = shifted(outputs.logits, inputs["labels"])
        ce, real = token_loss(logits, labels, self.smoothing)
        entropy = mean_over(Categorical(logits=logits).entropy(), real)
        loss = ce - self.beta * entropy
        if self.model.training:
            self.recent["ce"].append(ce.detach())
            self.recent["entropy"].append(entropy.detach())
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, start_time=None):
        for name, values in self.recent.items():
            if len(values) == values.maxlen:
                logs[name] = torch.stack(list(values)).mean().item()
        super().log(logs, start_time)

    @torch.no_grad()
    def perplexity(self, data):
        self.model.eval()
        total = torch.zeros(2, device=self.args.device)
        for batch in self._loader(data, shuffle=False):
            logits, labels = shifted(self.model(input_ids=batch["input_ids"], use_cache=False).logits, batch["labels"])
            ce, real = token_loss(logits, labels, 0.0)
            total += torch.stack([ce * real.sum(), real.sum().to(ce.dtype)])
        self.model.train()
        summed, tokens = total.tolist()
        return 2.718281828 ** (summed / max(1.0, tokens)), int(tokens)
