"""``roost run --initialize``: builds everything, saves step 0, reports the model, and trains nothing."""

from __future__ import annotations

from roost.base import durable
from roost.base.errors import TrainingError
from roost.base.exception_record import record_exception
from roost.base.text.byte_sizes import format_bytes
from roost.base.traceback_frames import exception_summary
from roost.package.package import PackageFolder
from roost.package.sessions import INITIALIZED
from roost.project.contract import Runner
from roost.train.data.batches import Batches, Interrupted
from roost.train.hook import Hook, Phase
from roost.train.model import memory_estimate, model_summary
from roost.train.model.model_summary import ForwardTrace
from roost.train.step import precision
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer


class Initialize(Hook):
    """Saves the state before the first step, after `on_start` of all other hooks; reports the model; and ends
    the session. The report comes after the save, so it cannot change the state that the run continues from.

    Args:
        package: The model's table is written into its folder.
    """

    phase = Phase.REPORT  # the last of all, after the project's hooks

    def __init__(self, package: PackageFolder) -> None:
        self._package = package

    def on_start(self, trainer: Trainer) -> None:
        """Saves, reports and requests the stop.

        Raises:
            TrainingError: The checkpoint could not be written.
        """
        if not trainer.save("start"):
            raise TrainingError(
                "step 0 could not be saved; the reason is printed above",
                fix="make space, then start it again",
            )
        if trainer.at_end:
            return  # a stop was requested
        lines = model_report(trainer.runner, trainer.stepper, trainer.loaders["train"])
        print("\n".join(lines), flush=True)
        durable.write(self._package.model_summary, "\n".join([*lines, ""]).encode())
        trainer.request_stop(INITIALIZED)


def model_report(runner: Runner, stepper: Stepper, train: Batches) -> list[str]:
    """Returns lines: the table of the model, its parameters, and the memory of a step. Runs one batch."""
    trace, num_samples, why = _forward_pass(runner, stepper, train)
    parameters = {id(p): p for p in runner.parameters()}.values()
    total, trained = (
        sum(p.numel() for p in found) for found in (parameters, [p for p in parameters if p.requires_grad])
    )
    frozen = f" ({trained:,} trained, {total - trained:,} frozen)" if trained != total else ""
    found = memory_estimate.estimate_memory(
        runner, stepper.optimizers, activations=trace.activations if not why else None
    )
    return [
        *model_summary.format_table(model_summary.module_rows(runner, trace.shapes)),
        f"parameters: {total:,}{frozen}, {format_bytes(found.parameters)}; "
        f"buffers: {format_bytes(found.buffers)}",
        *found.lines(num_samples=num_samples),
        *([why] if why else []),
    ]


def _forward_pass(runner: Runner, stepper: Stepper, train: Batches) -> tuple[ForwardTrace, int, str]:
    """Runs one batch through the loss. Returns the observed shapes and activations, the number of samples,
    and the reason if there was no forward pass (else empty)."""
    unknown = "output shapes and activation memory are unknown:"
    if type(runner).loss is Runner.loss:
        return ForwardTrace(), 0, f"{unknown} the Runner has update(), and no loss()"
    try:
        batch = train.first_batch()
        if batch is None:
            return ForwardTrace(), 0, f"{unknown} every batch of the training set is empty"
        numbers = precision.autocast_context(stepper.precision, runner.device)
        trace = model_summary.trace_forward(
            runner, runner.loss, runner.to_device(batch.value), context=numbers
        )
    except Interrupted:
        return ForwardTrace(), 0, f"{unknown} it was stopped"
    except Exception as error:  # noqa: BLE001  - step 0 is saved; the run's first step will raise it
        return (
            ForwardTrace(),
            0,
            f"{unknown} the loss of the first batch raises {exception_summary(record_exception(error))}",
        )
    return trace, batch.num_samples, ""
