"""Peers that own the loop: Lightning, and the Trainer of Hugging Face."""

from __future__ import annotations

import tempfile
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from transformers import Trainer, TrainingArguments

from .task import Clocked, Outcome, Work, loss_of, new_net, new_optimizer


class LightningTask(lightning.LightningModule):
    """The model as a LightningModule; ``logs``: the loss goes to bar and logger."""

    def __init__(self, work: Work, *, logs: bool) -> None:
        super().__init__()
        self.net, self._work, self._logs = new_net(work), work, logs

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = loss_of(self.net, *batch)
        if self._logs:
            self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return new_optimizer(self._work, self.parameters())


def lightning_bare(work: Work, batches: list[Any]) -> Outcome:
    """Trains without logger, bar, checkpoints and summary."""
    module, clocked = LightningTask(work, logs=False), Clocked(work, batches)
    off = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **off)
    trainer.fit(module, clocked)
    return clocked.outcome(module)


def lightning_default(work: Work, batches: list[Any]) -> Outcome:
    """Trains with bar, CSVLogger, a checkpoint at the end of the epoch, and the loss logged."""
    module, clocked = LightningTask(work, logs=True), Clocked(work, batches)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=CSVLogger(folder), callbacks=[TQDMProgressBar()]
        )
        trainer.fit(module, clocked)
    return clocked.outcome(module)


class _WithLoss(nn.Module):
    """A model that returns its loss, as the Trainer of Hugging Face requires."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.net = new_net(work)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": loss_of(self.net, x, labels)}


class _PrebuiltTrainer(Trainer):
    """A Trainer whose batches are prebuilt."""

    clocked: Clocked

    def get_train_dataloader(self) -> Any:
        return self.clocked


def hugging_bare(work: Work, batches: list[Any]) -> Outcome:
    """Trains without logs, bar and NaN filter."""
    off = {"logging_strategy": "no", "disable_tqdm": True, "logging_nan_inf_filter": False}
    return _hugging(work, batches, **off)


def hugging_default(work: Work, batches: list[Any]) -> Outcome:
    """Trains with bar, a log every 500 steps and NaN filter; saves are off: they would fall into timed
    steps."""
    return _hugging(work, batches, disable_tqdm=False)


def _hugging(work: Work, batches: list[Any], **settings: Any) -> Outcome:
    model = _WithLoss(work)
    optimizer = new_optimizer(work, model.parameters())
    clocked = Clocked(work, [{"x": x, "labels": y} for x, y in batches])
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1,
            max_grad_norm=work.max_grad_norm or 0.0,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            **settings,
        )
        data: Any = list(range(len(batches)))  # only its length is used
        trainer = _PrebuiltTrainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))
        trainer.clocked = clocked
        trainer.train()
    return clocked.outcome(model)
