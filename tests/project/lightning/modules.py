"""Modules of Lightning as a project has them; where lightning is missing, over classes with its contract."""

from __future__ import annotations

BASES = '''
from torch import nn

try:
    from lightning.pytorch import LightningDataModule, LightningModule
except ImportError:

    class LightningModule(nn.Module):
        """What a module inherits of Lightning, as far as it matters: attributes, and methods that need its
        trainer."""

        __module__ = "lightning.stand_in"

        def __init__(self):
            super().__init__()
            self._trainer = None

        automatic_optimization = True

        @property
        def trainer(self):
            if self._trainer is None:
                raise RuntimeError("is not attached to a Trainer")
            return self._trainer

        @trainer.setter
        def trainer(self, trainer):
            self._trainer = trainer

        @property
        def current_epoch(self):
            return self.trainer.current_epoch

        @property
        def global_step(self):
            return self.trainer.global_step

        def _without_trainer(self, *args, **kwargs):
            raise RuntimeError("this method of the base class needs Lightning's trainer")

        log = log_dict = print = optimizers = lr_schedulers = optimizer_step = backward = _without_trainer
        training_step = validation_step = test_step = predict_step = configure_optimizers = _without_trainer
        on_train_epoch_start = on_validation_epoch_end = on_before_optimizer_step = setup = _without_trainer
        transfer_batch_to_device = configure_model = train_dataloader = _without_trainer

    class LightningDataModule:
        __module__ = "lightning.stand_in"

        def _none(self, *args):
            raise RuntimeError("is not implemented")

        prepare_data = setup = train_dataloader = val_dataloader = test_dataloader = _none
        predict_dataloader = _none
'''

MODULE = '''
import os
import signal

import torch
import torchmetrics
from torch import nn

from bases import LightningModule


class Runner(LightningModule):
    """As the guides of Lightning have it: steps, metrics, a schedule, hooks."""

    def __init__(self, width=3, lr=0.1):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 1))
        self.train_accuracy = torchmetrics.Accuracy(task="binary")
        self.train_average = torchmetrics.MeanMetric()
        self.valid_accuracy = torchmetrics.Accuracy(task="binary")
        self.calls = []
        self.kept = []

    def forward(self, x):
        return self.net(x).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        self.train_accuracy(logits, y.int())
        self.log("train_loss", loss, prog_bar=True)
        self.train_average(logits.detach())
        self.log("train_average", self.train_average, on_step=False, on_epoch=True)
        self.log("train_acc", self.train_accuracy, on_step=False, on_epoch=True)
        self.log_dict({"train/mean": logits.mean(), "batch": float(batch_idx)})
        if self.global_step + 1 == int(os.environ.get("KILL_AT", 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": loss, "logits": logits}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.calls.append(f"batch {batch_idx} {len(outputs['logits'])}")

    def on_train_epoch_start(self):
        self.calls.append(f"epoch {self.current_epoch}")

    def on_train_epoch_end(self):
        self.log("train_epoch_end", float(self.trainer.num_training_batches))
        self.calls.append(f"epoch end {self.current_epoch}")

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        x, y = batch
        logits = self(x)
        self.valid_accuracy.update(logits, y.int())
        self.kept.append(logits)
        self.log("val_loss", nn.functional.binary_cross_entropy_with_logits(logits, y))
        self.log("val_acc", self.valid_accuracy)

    def on_validation_epoch_start(self):
        self.calls.append(f"validation {self.current_epoch}")

    def on_validation_epoch_end(self):
        self.log("val_samples", float(len(torch.cat(self.kept))))
        self.kept.clear()

    def test_step(self, batch, _):  # Lightning passes the index by its place
        x, y = batch
        self.log("test_hits", ((self(x) > 0) == y.bool()).float().mean())

    def predict_step(self, batch, idx):
        assert isinstance(idx, int)
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}
'''

DATA = """
import torch
from torch.utils.data import DataLoader, TensorDataset

from bases import LightningDataModule


class Dataset(LightningDataModule):
    def __init__(self, batch_size=10):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        open("prepared", "w").close()

    def setup(self, stage):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        self.data = TensorDataset(x, (x.sum(1) > 0).float())

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return [DataLoader(self.data, batch_size=16), DataLoader(self.data, batch_size=40)]

    def test_dataloader(self):
        return DataLoader(self.data, batch_size=16)
"""
