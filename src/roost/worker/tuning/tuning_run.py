"""All measurements of `roost tune`, one target after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch

from roost.base.errors import Refused
from roost.base.system import cpu_cores
from roost.base.text.durations import format_short_duration
from roost.package.package import PackageFolder
from roost.package.project_preflight import format_classes
from roost.package.results import tuning_report
from roost.package.results.tuning_report import (
    RangeTestFinding,
    TargetFinding,
    TuningReport,
    TuningTarget,
)
from roost.project import data_loaders, native_project
from roost.project.device_choice import choose_device
from roost.worker import torch_settings
from roost.worker.check.stages import StageReporter
from roost.worker.tuning import loader_tuning, lr_range_test, step_tuning
from roost.worker.tuning.budget import Budget
from roost.worker.tuning.measured_run import MeasuredRun

_WEIGHTS: Mapping[TuningTarget, float] = {
    "workers": 4.0, "prefetch": 2.0, "batch_size": 3.0, "step_mode": 4.0, "lr": 1.5
}  # fmt: skip
"""How the time is divided; what a target leaves is divided among the others."""


class TuningRun:
    """Measures the requested targets, and writes the report after each::

        imports, data, model, first step (with the settings of the config: its errors are those of a run)
        workers, prefetch       the fastest ones are used from here on, because they change no bit
        batch_size, step_mode   only reported; used from here on if they will be applied
        lr                      from the initial weights

    Args:
        package: Package made for the measurements.
        request: Request of its session, with ``targets``, ``apply`` and ``seconds``.
        reporter: Gets each stage; its stage "imports" has begun.
    """

    def __init__(self, package: PackageFolder, request: Mapping[str, Any], reporter: StageReporter) -> None:
        self._package, self._reporter = package, reporter
        self._device, self._project = choose_device(str(request["device"])), str(request["project"])
        self._targets: Sequence[TuningTarget] = tuning_report.ordered_targets(request["targets"])
        self._applied: Sequence[str] = request["apply"]
        self._seconds = float(request["seconds"])
        staged = native_project.stage_data(package, self._project)
        self._values, self._settings = native_project.resolve_settings(package, self._project, staged=staged)
        torch_settings.apply(self._settings, device=self._device, first=None)
        self._report = TuningReport(
            device=self._device,
            num_cores=cpu_cores.usable_cores(),
            num_threads=torch.get_num_threads(),
        )

    def run(self) -> None:
        """Measures all targets.

        Raises:
            RoostError: The config or the project is wrong.
            Refused: The time did not suffice for any measurement.
            Exception: An error of the project's code.
        """
        run = self._build()
        if "lr" in self._targets and not run.has_lazy_weights:
            run.keep_initial()
        self._first_step(run)
        if "lr" in self._targets and not run.has_initial:
            run.keep_initial()  # one step later, now that the first batch has sized the weights
        began, budget = perf_counter(), Budget(self._seconds)
        for number, target in enumerate(self._targets):
            weight, weights = _WEIGHTS[target], [_WEIGHTS[one] for one in self._targets[number:]]
            self._measure(run, target, budget.share(weight / sum(weights)))
            self._report.seconds = perf_counter() - began
            tuning_report.write(self._package.path, self._report)
        if not self._report.has_measured and all(one.is_late for one in self._report.findings):
            raise Refused(
                f"{self._seconds:g} s do not suffice to measure anything: a step takes "
                f"{format_short_duration(run.step_seconds)}",
                setting="--seconds",
                received=self._seconds,
                fix=f"give --seconds {max(60, round(100 * run.step_seconds))} or more",
            )

    def _build(self) -> MeasuredRun:
        settings = self._settings
        self._reporter.done(format_classes(settings.runner, settings.dataset))
        self._reporter.begin("model")
        with self._reporter.recording_warnings():
            run = MeasuredRun(
                self._package, settings, self._values, project=self._project, device=self._device
            )
        sizes = {
            name: data_loaders.format_set_size(one) for name, one in data_loaders.named_sets(run.data).items()
        }
        shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
        total = sum(p.numel() for p in run.runner.parameters() if not hasattr(p, "materialize"))
        self._reporter.done(f"{total:,} parameters on {run.runner.device}; {shown}")
        return run

    def _first_step(self, run: MeasuredRun) -> None:
        self._reporter.begin("first step")
        run.warm_up()
        self._reporter.done(f"about {format_short_duration(run.step_seconds)} a step with its data")

    def _measure(self, run: MeasuredRun, target: TuningTarget, budget: Budget) -> None:
        self._reporter.begin(target)

        def report(line: str) -> None:
            print(f"  {target} {line}", flush=True)

        found = _MEASUREMENTS[target](run, budget, report)
        if isinstance(found, RangeTestFinding):
            self._report.range_test = found
            self._reporter.done(found.reason)
            return
        self._report.findings.append(found)
        if found.is_neutral or target in self._applied:
            run.use(found.changes)
        shown = f"{found.chosen}: " if found.candidates else "not measured: "
        self._reporter.done(f"{shown}{found.reason}")


_MEASUREMENTS: Mapping[
    TuningTarget,
    Callable[[MeasuredRun, Budget, Callable[[str], None]], TargetFinding | RangeTestFinding],
] = {
    "workers": loader_tuning.tune_workers,
    "prefetch": loader_tuning.tune_prefetch,
    "batch_size": step_tuning.tune_batch_size,
    "step_mode": step_tuning.tune_step_mode,
    "lr": lr_range_test.ramp_rates,
}
