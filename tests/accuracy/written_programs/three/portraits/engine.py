"""Engine: global steps, callbacks by name, evaluation every so often."""
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Callback:
    def on_start(self, engine): ...
    def on_step(self, engine, logs): ...
    def on_eval(self, engine, logs): ...
    def on_end(self, engine): ...


class Engine:
    def __init__(self, task, optimizer, loaders, sampler, settings, callbacks=()):
        self.task, self.optimizer = task, optimizer
        self.loaders, self.sampler, self.settings = loaders, sampler, settings
        self.callbacks = list(callbacks)
        self.device = torch_xla.device()
        self.step = self.micro = self.epoch = 0
        self.rough = 0

    def call(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def pull(self, it):
        try:
            return next(it), it
        except StopIteration:
            self.epoch += 1
            self.sampler.set_epoch(self.epoch)
            it = iter(self.loaders["train"])
            return next(it), it

    def accumulate(self, batch):
        with torch.autocast("xla", dtype=torch.bfloat16):
            losses = self.task(batch)
            loss = sum(losses.values()) / self.settings["accumulate"]
            loss.backward()
        return {k: v.detach() for k, v in losses.items()}

    def run(self):
        s = self.settings
        self.call("on_start")
        self.task.train()
        self.optimizer.zero_grad()
        it = iter(self.loaders["train"])
        while self.step < s["steps"]:
            batch, it = self.pull(it)
            batch = {k: v.to(self.device) for k, v in batch.items()}
            logs = self.accumulate(batch)
            self.micro += 1
            if self.micro % s["accumulate"]:
                continue
            xm.reduce_gradients(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.task.parameters(), s["clip"])
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            torch_xla.sync()
            self.rough += 1 if norm > s["rough"] else 0
            self.call("on_step", logs)
            if self.step % s["evaluate"] == 0:
                self.call("on_eval", self.evaluate())
        self.call("on_end")

    @torch.no_grad()
    def evaluate(self):
        self.task.eval()
        parts = self.task.empty()
        for batch in pl.MpDeviceLoader(self.loaders["val"], self.device):
            for name, value in self.task.measure(batch).items():
                parts[name].append(value)
        self.task.train()
        return {name: sum(values) / max(1, len(values)) for name, values in parts.items()}
