"""A LightningModule as a Runner: its steps, its optimizer, what it logs, its hooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from roost.base.errors import ContractError
from roost.project.contract import Runner
from roost.project.lightning import module_contract, optimizer_shapes
from roost.project.lightning.module_contract import call, overrides, row_name
from roost.project.lightning.trainer_view import TrainerView
from roost.train.events import Value
from roost.train.hook import Hook, Phase
from roost.train.optim.optimizer import Optim
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer

_WORDS = {"valid": "validation", "test": "test"}
"""The words for stages in the names of Lightning's hooks."""


class _Stage:
    """What a module logs in one stage.

    Args:
        name: train, valid or test.
        is_open: Whether it is an evaluation that has begun and not ended.
    """

    def __init__(self, name: str, *, is_open: bool = False) -> None:
        self.name, self.is_open = name, is_open
        self.batch_index = 0
        self.epoch: int | None = None
        """The epoch of the newest training step; None before the first."""
        self.values: dict[str, Value] = {}
        """The values of the newest batch, by name in a row."""
        self.metrics: dict[str, Any] = {}
        """Metrics of torchmetrics, which are computed at the end of the stage or of the epoch."""


class LightningRunner(Runner):
    """Trains a LightningModule: ``runner: Lit.py:LitModel`` in a config makes one from its class, whose
    arguments are the setting ``module``.

    Called are ``training_step``, ``validation_step``, ``test_step``, ``predict_step``,
    ``configure_optimizers``, ``configure_model``, ``setup("fit")``, the hooks that move a batch, and those at
    the start and end of fit, training, its epochs and batches, validations, tests and their batches. Others
    that a module overrides are named once, by `build`. Each validation set has a start and an end.

    Rows have the loss as ``train/loss``, and what `log` is given as its mean since the row before; names lose
    the prefix of their stage: ``val_loss`` is ``valid/loss``. A metric of torchmetrics is computed at the end
    of the evaluation, or of the epoch, and reset.

    Args:
        args: All settings; or the module, for a Trainer of your own: then `build` has been called.
        info: As for `Runner`.

    Raises:
        ContractError: The module has manual optimization.
    """

    module_class: type[nn.Module] | None = None
    """What `make_module` constructs."""
    max_grad_norm: float | None = None
    """The norm to which gradients are clipped, Lightning's ``gradient_clip_val``."""

    def __init__(
        self,
        args: Mapping[str, Any] | nn.Module | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        given = args if isinstance(args, nn.Module) else None
        super().__init__(args if not isinstance(args, nn.Module) else {}, info)
        self.stage = self._training = _Stage("train")
        self.made_optimizers: list[Optim] = []
        self._outputs: list[Any] = []
        self._unlogged: set[str] = set()
        if given is not None:
            self.module = given
            self._adopt()

    @property
    def epoch(self) -> int:
        """The epoch as Lightning counts it: it lasts until the validation after its last step and its end."""
        newest = self._training.epoch
        return self.progress.epoch if newest is None else newest

    @classmethod
    def of(cls, module_class: type[nn.Module]) -> type[LightningRunner]:
        """Returns the Runner class of a module class."""
        return type(f"{module_class.__name__}Runner", (cls,), {"module_class": module_class})

    def make_module(self) -> nn.Module:
        """Returns the module, constructed with the arguments of the setting ``module``."""
        if self.module_class is None:
            fix = "set module_class, or override make_module()"
            raise ContractError(f"{type(self).__name__} has no module_class", fix=fix)
        return self.module_class(**(self.args.get("module") or {}))

    def build(self) -> None:
        self.module = self.make_module()
        self._adopt()

    def _adopt(self) -> None:
        """Connects the module: what it logs, prints and asks goes to this Runner."""
        module, name = self.module, type(self.module).__name__
        if not getattr(module, "automatic_optimization", True):
            raise ContractError(
                f"{name} has manual optimization (automatic_optimization = False), which roost does not call",
                fix="write a roost.Runner with `update`, which takes the steps of several optimizers",
            )
        for attribute, replacement in (
            ("log", self._log),
            ("log_dict", self._log_dict),
            ("print", self.print),
            ("all_gather", lambda data, *_: self.all_gather(data)),
            ("optimizers", lambda *_, **__: self.made_optimizers[0].optimizer),
            ("lr_schedulers", lambda: self.made_optimizers[0].scheduler),
        ):
            object.__setattr__(module, attribute, replacement)
        module.trainer = TrainerView(self)  # type: ignore[assignment]
        call(module, "setup", "fit")
        call(module, "configure_model")
        if unused := module_contract.unused_methods(module):
            self.print(f"{name}: roost does not call {', '.join(unused)}")

    def to(self, *args: Any, **settings: Any) -> Self:
        super().to(*args, **settings)
        self.module.to(*args, **settings)  # Lightning keeps the device that it is moved to here
        return self

    def to_device(self, batch: Any) -> Any:
        module = self.module
        if overrides(module, "on_before_batch_transfer"):
            batch = module.on_before_batch_transfer(batch, 0)  # type: ignore[operator]
        if overrides(module, "transfer_batch_to_device"):
            batch = module.transfer_batch_to_device(batch, self.device, 0)  # type: ignore[operator]
        else:
            batch = super().to_device(batch)
        if overrides(module, "on_after_batch_transfer"):
            batch = module.on_after_batch_transfer(batch, 0)  # type: ignore[operator]
        return batch

    # ---- training -----------------------------------------------------------------------------------------

    def optimizers(self) -> Mapping[str, Optim | torch.optim.Optimizer]:
        returned = self.module.configure_optimizers()  # type: ignore[operator]
        self.made_optimizers = [optimizer_shapes.optim_of(returned, max_grad_norm=self.max_grad_norm)]
        return {"main": self.made_optimizers[0]}

    def hooks(self) -> Sequence[Hook]:
        return [LightningHooks(self)]

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Value]:
        first = self.progress.batch
        self.stage.batch_index, self.stage.epoch, self._outputs = first, self.progress.epoch, []
        if first == 0:
            call(self.module, "on_train_epoch_start")
        values = dict(stepper.run(self.loss, batches, optimizer=stepper.every_optimizer))
        if overrides(self.module, "on_train_batch_end"):
            for place, (batch, output) in enumerate(zip(batches, self._outputs, strict=False)):
                call(self.module, "on_train_batch_end", output, batch, first + place)
            values |= self._taken_values()
        return values

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        index = self.stage.batch_index
        self.stage.batch_index = index + 1
        call(self.module, "on_train_batch_start", batch, index)
        output = self._call_step("training_step", batch, index, 0)
        self._outputs.append(output)
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(loss, Tensor):
            raise ContractError(
                "training_step must return the loss, a tensor, or a mapping with it",
                received=output,
                fix="return it for each batch; roost skips no batch for None",
            )
        logged = {name: value for name, value in self._taken_values().items() if value is not loss}
        return {"loss": loss, **{name: torch.as_tensor(value) for name, value in logged.items()}}

    def _call_step(self, name: str, batch: Any, index: int, set_index: int, **variant: Any) -> Any:
        method = getattr(self.module, name)
        offered = {"batch_idx": index, "dataloader_idx": set_index, **variant}
        first = [batch, index] if module_contract.names_its_index(method, *offered) else [batch]
        return method(*first, **module_contract.accepted(method, **offered))

    # ---- what a module logs -------------------------------------------------------------------------------

    def _log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        **other: Any,
    ) -> None:
        """Takes the place of the module's ``log``."""
        if reduce_fx not in ("mean", torch.mean) and name not in self._unlogged:
            self._unlogged.add(name)
            self.print(f"self.log({name!r}, reduce_fx=…): a row has the mean")
        short = row_name(name, self.stage.name)
        if isinstance(value, Mapping):
            self._log_dict(
                {f"{name}.{key}": one for key, one in value.items()}, on_step=on_step, on_epoch=on_epoch
            )
        elif not module_contract.is_torchmetric(value):
            self.stage.values[short] = value
        elif self.stage.name != "train":
            self.stage.metrics[short] = value
        else:
            newest = getattr(value, "_forward_cache", None)  # what the metric returned for this batch
            if on_step is not False and newest is not None:
                self.stage.values[short] = newest
            if on_epoch or on_step is False:
                self.stage.metrics[f"{short}_epoch" if on_step is not False else short] = value

    def _log_dict(self, dictionary: Mapping[str, Any], *positional: Any, **settings: Any) -> None:
        """Takes the place of the module's ``log_dict``."""
        for name, value in dictionary.items():
            self._log(name, value, *positional, **settings)

    def _taken_values(self) -> dict[str, Value]:
        values, self.stage.values = self.stage.values, {}
        return values

    def end_epoch(self, trainer: Trainer) -> None:
        """Calls ``on_train_epoch_end``, and records what it logs and the metrics of the epoch."""
        call(self.module, "on_train_epoch_end")
        values = self._taken_values() | _computed(self.stage.metrics)
        self.stage.metrics = {}
        if values:
            trainer.events.log(values, of_step=True)

    # ---- evaluation ---------------------------------------------------------------------------------------

    def evaluate(self, batch: Any, **variant: Any) -> Mapping[str, Tensor]:
        return self._evaluated("valid", "validation_step", batch, variant)

    def test(self, batch: Any, **variant: Any) -> Mapping[str, Any]:
        if not overrides(self.module, "test_step"):
            return self.evaluate(batch, **variant)
        return self._evaluated("test", "test_step", batch, variant)

    def _evaluated(
        self, name: str, step: str, batch: Any, variant: Mapping[str, Any]
    ) -> Mapping[str, Tensor]:
        if not overrides(self.module, step):
            fix = f"write `def {step}(self, batch, batch_idx)`, or give no such set"
            raise ContractError(f"{type(self.module).__name__} has no {step}", fix=fix)
        if not (self.stage.is_open and self.stage.name == name):
            self.stage = _Stage(name, is_open=True)
            call(self.module, f"on_{_WORDS[name]}_start")
            call(self.module, f"on_{_WORDS[name]}_epoch_start")
        index = self.stage.batch_index
        self.stage.batch_index = index + 1
        call(self.module, f"on_{_WORDS[name]}_batch_start", batch, index)
        output = self._call_step(step, batch, index, 0, **variant)
        call(self.module, f"on_{_WORDS[name]}_batch_end", output, batch, index)
        values = self._taken_values()
        if not values and isinstance(output, Tensor):
            values = {"loss": output}
        return {
            key: one.detach() if isinstance(one, Tensor) else torch.tensor(float(one), dtype=torch.float64)
            for key, one in values.items()
        }

    def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float | None]:
        return self._end_evaluation() if self.stage.is_open else {}

    def _end_evaluation(self) -> dict[str, float | None]:
        """Calls the hooks at the end; returns what they log, and the metrics of torchmetrics."""
        stage, word = self.stage, _WORDS[self.stage.name]
        call(self.module, f"on_{word}_epoch_end")
        found = self._taken_values() | _computed(stage.metrics)
        call(self.module, f"on_{word}_end")
        self.stage = self._training
        return {name: float(value) for name, value in found.items()}

    def __setattr__(self, name: str, value: Any) -> None:
        # After each evaluation roost sets `training` to what it was. One of a single batch, by which metrics
        # are found before the first step, ends only here, so that what it accumulated does not count later.
        super().__setattr__(name, value)
        if name == "training" and value and "stage" in self.__dict__ and self.stage.is_open:
            if sys.exc_info()[0] is None:
                with torch.no_grad():
                    self._end_evaluation()
            self.stage = self._training

    def predict(self, batch: Any) -> Mapping[str, Any]:
        step = "predict_step" if overrides(self.module, "predict_step") else "forward"
        output = self._call_step(step, batch, 0, 0) if step == "predict_step" else self.module(batch)
        return output if isinstance(output, Mapping) else {"prediction": output}

    # ---- state --------------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the state of the metrics of torchmetrics, which no buffer holds."""
        return {
            name: {"state": dict(part.metric_state), "updates": part._update_count}
            for name, part in self.named_modules()
            if self.saves_attributes_of(part)
        }

    def saves_attributes_of(self, part: nn.Module) -> bool:
        """Whether `get_extra_state` has the state of a submodule."""
        return hasattr(part, "metric_state") and hasattr(part, "_update_count")

    def set_extra_state(self, state: Any) -> None:
        """Restores the result of `get_extra_state`."""
        parts = dict(self.named_modules())
        for name, own in (state or {}).items():
            for key, value in own["state"].items():
                setattr(parts[name], key, value)
            parts[name]._update_count = own["updates"]


class LightningHooks(Hook):
    """Calls a module's hooks at the start and the end of the training and of each epoch.

    Args:
        runner: The Runner of the module.
    """

    phase = Phase.MODEL

    def __init__(self, runner: LightningRunner) -> None:
        self._runner = runner

    def on_start(self, trainer: Trainer) -> None:
        call(self._runner.module, "on_fit_start")
        call(self._runner.module, "on_train_start")

    def on_epoch(self, trainer: Trainer) -> None:
        self._runner.end_epoch(trainer)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        call(self._runner.module, "on_train_end")
        call(self._runner.module, "on_fit_end")


def _computed(metrics: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the values of metrics of torchmetrics, and resets them."""
    found = {name: metric.compute() for name, metric in metrics.items()}
    for metric in metrics.values():
        metric.reset()
    return found
