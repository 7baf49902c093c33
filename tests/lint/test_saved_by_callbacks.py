"""What callbacks of Lightning ask of the module that they are given, and what nobody asks of it.

All programs are invented. ``# !XLA721`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

PAINTER = """\
import PIL.Image
import torch
import pytorch_lightning as pl


class Painter(pl.LightningModule):
    def __init__(self, batch):
        super().__init__()
        self.batch = int(batch)
        self.brush = torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        return self.brush(batch).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.brush.parameters())

    def keep(self, path):
        torch.save({"brush": self.brush.state_dict(), "batch": self.batch}, path)  # !XLA406 XLA721

    def show(self, path, points):
        self.brush.eval()
        sheet = PIL.Image.new("RGB", (64, 64 * len(points)))
        for place, point in enumerate(points):
            out = self.brush(point.to(self.device))
            sheet.paste(PIL.Image.fromarray(out.cpu().numpy()), (0, place * 64))  # !XLA101
        sheet.save(path)  # !XLA406

    def frames(self, folder, points):
        self.brush.eval()
        for point in points:
            out = self.brush(point.to(self.device))
            PIL.Image.fromarray(out.cpu().numpy()).save(f"{folder}/frame.png")
"""
KEEPER = """\
import torch
import pytorch_lightning as pl


class Keeper(pl.Callback):
    def __init__(self, points, **settings):
        self.points, self.folder, self.often = points, settings["folder"], settings["often"]
        self.seen = 0

    def on_train_batch_end(self, trainer, net, outputs, batch, index):
        self.seen += net.batch
        if self.seen % self.often == 0:
            self.write(net, str(self.seen))

    def write(self, net, name):
        net.keep(self.folder + "/" + name + ".pt")
        net.show(self.folder + "/" + name + "-sheet.png", self.points)

    def on_train_epoch_end(self, trainer, net):
        net.show(f"{trainer.current_epoch}.png", self.points)
        torch.save(net.state_dict(), self.folder / "whole.pt")  # !XLA406 XLA721
        torch.save(net.brush.state_dict(), "brush.pt")  # !XLA406 XLA721
        torch.save({"seen": self.seen}, "seen.pt")  # !XLA406

    def on_fit_end(self, trainer, net):
        torch.save(net.cpu().state_dict(), "end.pt")  # !XLA406
"""
MAIN = """\
import pytorch_lightning as pl
from keeper import Keeper
from painter import Painter


def main(data, points):
    keeper = Keeper(points, folder="out", often=100)
    trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[keeper])
    trainer.fit(Painter(16), data)
"""
ASKED = {"XLA101", "XLA406", "XLA721"}


def test_what_callbacks_have_a_module_do(tmp_path):
    files = {"painter.py": PAINTER, "keeper.py": KEEPER, "main.py": MAIN}
    assert told_in_files(tmp_path, files, ASKED) == marks_in_files(files)


def test_of_a_program_that_has_no_such_callback(tmp_path):
    """Then nothing says when, and where, its methods run."""
    files = {
        "painter.py": PAINTER.replace("  # !", "  # "),
        "main.py": MAIN.replace("from keeper import Keeper\n", "")
        .replace('    keeper = Keeper(points, folder="out", often=100)\n', "")
        .replace(", callbacks=[keeper]", ""),
    }
    assert told_in_files(tmp_path, files, ASKED) == set()


WRITTEN = """\
import os
import torch_xla
import torch_xla.core.xla_model as xm
def run(index, folder, sheet, name):
    sheet.save({path})  {mark}
torch_xla.launch(run, args=("out", make(), "a"))
"""
PATHS = {
    'folder / "sheet.png"': True,
    'folder + "/" + name + ".jpg"': True,
    '"%s/%s.gif" % (folder, name)': True,
    '"{}.png".format(name)': True,
    'folder / f"{index}.png"': False,
    '"sheet-%d.png" % index': False,
    'folder / "weights"': False,
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_say_that_a_picture_is_written(path):
    program = WRITTEN.format(path=path, mark="# !XLA406" if PATHS[path] else "")
    assert told("XLA406: pictures", program) == marks(program)
