"""The operation ``tune``: measures other settings of a run, and writes the fast ones into a tuning file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, Refused, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.timestamps import format_time
from roost.config import layers
from roost.config.run_settings import Contract
from roost.operations.plots.plot import check_output
from roost.operations.sessions.foreground_lease import choose_one_card
from roost.operations.sessions.project_worker import worker_on_copy
from roost.operations.sessions.rank_layout import one_process_notes
from roost.operations.sessions.running_session import RunningSession
from roost.operations.tuning.tuning_file import TuningContext, is_own_file, tuning_text
from roost.package.kinds import TaskKind
from roost.package.package_draft import prepare_training
from roost.package.results import check_findings, tuning_report
from roost.package.results.tuning_report import TARGETS, TuningReport
from roost.package.sessions import Session
from roost.supervisor.guard_start import GuardProcess

MIN_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """A request to tune a config."""

    config: Path
    project: Path | None = None
    """The folder of the code; None: that of the config (`roost.config.project_folder`)."""
    tuning: Path | None = None
    """A tuning file of which the measurements start."""
    overrides: Sequence[str] = ()
    device: str = "auto"
    """auto, cpu, cuda, mps or xpu."""
    targets: Sequence[str] = ()
    """What to measure, of `TARGETS`; empty: all."""
    apply: Sequence[str] = ()
    """The targets whose settings are written plainly although they change the results."""
    seconds: float = 60.0
    """The time of all measurements; building the run comes before it."""
    output: Path = Path("tuned.yaml")
    command: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TuneOutcome:
    """The result of tuning."""

    state: str
    exit_code: int
    reason: str | None
    error: str | None
    """One line."""
    failed: str | None
    """The stage that failed, or in which the process died."""
    warnings: list[str]
    report: TuningReport
    tuning_file: str | None
    """The file that was written; None unless the measurements have finished."""
    picture: str | None
    """The picture of the range test."""


@dataclass(frozen=True)
class RunningTuning:
    """Measurements whose worker is running."""

    running: RunningSession
    process: GuardProcess
    request: TuneRequest
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""

    def outcome(self, ended: Session) -> TuneOutcome:
        """Writes the tuning file and the picture, and returns the result; to be called before the block of
        `tune` is left.

        Args:
            ended: The ended session, with the supervisor's record.

        Raises:
            OSError: A file cannot be written.
        """
        record, package = ended.recorded, self.running.package
        findings, report = check_findings.read(package), tuning_report.read(package)
        has_finished = ended.state == "succeeded"
        code = record.exit_code
        picture = self._draw(report) if has_finished else None
        if has_finished:
            durable.write(self.request.output.absolute(), self._text(report).encode())
        return TuneOutcome(
            state=ended.state,
            exit_code=code if isinstance(code, int) else 1,
            reason=record.reason,
            error=ended.error,
            failed=None if has_finished else findings.last or None,
            warnings=findings.warnings,
            report=report,
            tuning_file=str(self.request.output) if has_finished else None,
            picture=None if picture is None else str(picture),
        )

    def _text(self, report: TuningReport) -> str:
        context = TuningContext(
            when=format_time(time.time()),
            host=os.uname().nodename,
            config=str(self.request.config),
            overrides=self.request.overrides,
            name=str(self.request.output),
        )
        return tuning_text(report, self.request.apply, context)

    def _draw(self, report: TuningReport) -> Path | None:
        if report.range_test is None or find_spec("matplotlib") is None:
            return None
        from roost.operations.tuning import rate_picture  # matplotlib takes half a second

        path = picture_path(self.request.output)
        durable.write(path.absolute(), rate_picture.draw_range_test(report.range_test, "png"))
        return path


def picture_path(output: Path) -> Path:
    """Returns the path of the picture of a tuning file, in the same folder: ``tuned.lr.png``."""
    return output.with_suffix(".lr.png")


def parse_targets(text: str, *, setting: str) -> list[str]:
    """Returns the targets of a list such as ``workers,lr``.

    Raises:
        UsageError: One is not known.
    """
    names = [one for part in text.split(",") if (one := part.strip())]
    for name in names:
        if name not in TARGETS:
            raise UsageError(
                "is nothing that can be tuned",
                setting=setting,
                received=name,
                fix=f"{did_you_mean(name, TARGETS)}choose among {', '.join(TARGETS)}",
            )
    if not names:
        raise UsageError(
            "names nothing", setting=setting, received=text, fix=f"choose among {', '.join(TARGETS)}"
        )
    return names


@contextmanager
def tune(request: TuneRequest) -> Iterator[RunningTuning]:
    """Copies the project as `run` would, to a folder that is removed at the end, and measures there. Nothing
    is written into ``save_root``. The measurements end with the block, or when this process is gone.

    Raises:
        NotFound: There is no such config, or no folder for the tuning file.
        UsageError: The time is too short, or what shall be applied is not measured.
        ConfigError: The config, or a file it names, is wrong.
        Refused: The tuning file or the picture would replace another file, or the config does not train by
            roost's loop.
        CardsBusy: Other processes hold all GPUs.
        OSError: The project cannot be copied.
        RoostError: The supervisor did not start.
    """
    targets = tuning_report.ordered_targets(request.targets)
    _check_request(request, targets)
    config = layers.load(request.config, tuning=request.tuning, overrides=request.overrides)
    if config.contract is Contract.DLNEST:
        raise Refused(
            "a project of DLNest's contract makes its own batches and steps, so nothing can be tuned from "
            "outside",
            received=str(request.config),
            fix="set the workers and the batch size in its own config",
        )
    plan = prepare_training(config, project=request.project)
    if not plan.settings.trains:
        raise Refused(
            "the config does not train, it only measures",
            setting="step_mode",
            where=config.where("step_mode"),
            fix="add step_mode=eager",
        )
    notes = [*plan.notes(), *one_process_notes(plan.settings, device=request.device, where=config.where)]
    if "lr" in targets and find_spec("matplotlib") is None:
        notes.append("no picture of the range test without matplotlib: pip install 'roost[demo]'")
    session_cards = choose_one_card(request.device)
    notes += session_cards.notes
    with worker_on_copy(
        plan,
        TaskKind.TUNE,
        device=request.device,
        command=request.command,
        session_cards=session_cards,
        request={"targets": targets, "apply": list(request.apply), "seconds": request.seconds},
    ) as started:
        yield RunningTuning(started.running, started.process, request, notes)


def _check_request(request: TuneRequest, targets: Sequence[str]) -> None:
    if not request.seconds >= MIN_SECONDS:
        raise UsageError(
            "is too short for any measurement",
            setting="--seconds",
            received=request.seconds,
            fix="give 60, or more for a run with slow steps",
        )
    for name in request.apply:
        if name not in targets:
            raise UsageError("is not measured", setting="--apply", received=name, fix=f"add {name} to --what")
    output = request.output
    if not output.absolute().parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="-o", received=str(output.parent), fix="create it first"
        )
    if output.suffix not in (".yaml", ".yml"):
        raise UsageError(
            "is no name of a tuning file", setting="-o", received=str(output), fix="end it in .yaml"
        )
    if os.path.lexists(output) and not is_own_file(output):
        raise Refused(
            "exists, and is no tuning file that `roost tune` has written",
            setting="-o",
            received=str(output),
            fix="give another name",
        )
    if "lr" in targets and find_spec("matplotlib") is not None:
        check_output(picture_path(output), overwrite=False)
