"""``roost run --initialize``: all is made, step 0 is saved, the model is told, and nothing is trained."""

from __future__ import annotations

from roost.base import durable
from roost.base.errors import TrainingError
from roost.base.exception_record import record_exception
from roost.base.text.byte_sizes import format_bytes
from roost.base.traceback_frames import exception_summary
from roost.package.package import Package
from roost.package.sessions import INITIALIZED
from roost.project.contract import Runner
from roost.train.data.batches import Interrupted
from roost.train.hook import Hook, Phase
from roost.train.model import memory_estimate, model_summary
from roost.train.model.model_summary import ForwardTrace
from roost.train.step import precision
from roost.train.trainer import Trainer


class Initialize(Hook):
    """Saves the state before the first step, once all other hooks have begun; tells the model; and ends the
    session. What is done after the save changes nothing that the run goes on with.

    Args:
        package: Keeps the table of the model.
    """

    phase = Phase.REPORT  # after the project's own, the last of all

    def __init__(self, package: Package) -> None:
        self._package = package

    def on_start(self, trainer: Trainer) -> None:
        """Does it all.

        Raises:
            TrainingError: The checkpoint could not be written.
        """
        if not trainer.save("start"):
            raise TrainingError(
                "step 0 could not be saved; why stands above", fix="make space, and start it again"
            )
        if trainer.at_end:
            return  # somebody has asked it to stop
        lines = model_report(trainer)
        print("\n".join(lines), flush=True)
        durable.write(self._package.model_summary, "\n".join([*lines, ""]).encode())
        trainer.request_stop(INITIALIZED)


def model_report(trainer: Trainer) -> list[str]:
    """The table of a trainer's model, its parameters, and the memory of a step. One batch goes through it."""
    seen, num_samples, why = _forward_pass(trainer)
    runner = trainer.runner
    parameters = {id(p): p for p in runner.parameters()}.values()
    total, trained = (
        sum(p.numel() for p in found) for found in (parameters, [p for p in parameters if p.requires_grad])
    )
    frozen = f" ({trained:,} trained, {total - trained:,} frozen)" if trained != total else ""
    found = memory_estimate.estimate_memory(
        runner, trainer.stepper.optimizers, activations=seen.activations if not why else None
    )
    return [
        *model_summary.format_table(model_summary.module_rows(runner, seen.shapes)),
        f"parameters: {total:,}{frozen}, {format_bytes(found.parameters)}; buffers: {format_bytes(found.buffers)}",
        *found.lines(num_samples=num_samples),
        *([why] if why else []),
    ]


def _forward_pass(trainer: Trainer) -> tuple[ForwardTrace, int, str]:
    """What a forward pass of one batch shows, its samples, and why there is none, in words."""
    runner, unknown = trainer.runner, "what modules give and keep is unknown:"
    if type(runner).loss is Runner.loss:
        return ForwardTrace(), 0, f"{unknown} the Runner has update(), and no loss()"
    try:
        batch = trainer.loaders["train"].first()
        if batch is None:
            return ForwardTrace(), 0, f"{unknown} every batch of the training set is empty"
        numbers = precision.autocast_context(trainer.stepper.precision, runner.device)
        seen = model_summary.trace_forward(runner, runner.loss, runner.to_device(batch.value), context=numbers)
    except Interrupted:
        return ForwardTrace(), 0, f"{unknown} it was stopped"
    except Exception as error:  # noqa: BLE001  - step 0 stands; the first step of the run will tell the rest
        return ForwardTrace(), 0, f"{unknown} the loss of the first batch raises {exception_summary(record_exception(error))}"
    return seen, batch.num_samples, ""
