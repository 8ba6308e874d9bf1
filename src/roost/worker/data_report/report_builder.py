"""The data report: builds the data of a project as a run does, and draws batches from each set."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec
import torch

from roost.base.errors import ConfigError
from roost.base.text.durations import format_short_duration
from roost.package.package import PackageFolder
from roost.package.project_preflight import format_classes
from roost.package.results.data_report import LoadingTimes, SplitReport
from roost.package.setting_locations import setting_locations
from roost.project import data_loaders, native_project
from roost.project.batch_plans import sample_column
from roost.project.contract import Data
from roost.project.device_choice import choose_device
from roost.train.data.batches import Batches
from roost.train.data.loader import Loader
from roost.train.data.stream import Stream
from roost.worker import torch_settings
from roost.worker.check.stages import StageReporter
from roost.worker.data_report.batch_timing import BatchTimer, batch_sizes
from roost.worker.data_report.set_description import describe_set


class DataReportBuilder:
    """Builds the data and reports one set after the other::

        imports, data
        each set: description, plan, workers, seeds; batches for two seconds

    No model is built, and nothing is computed from the batches.

    Args:
        package: Package made for this report.
        request: Request of its session.
        reporter: Gets each stage and the findings of each set; its stage "imports" has begun.
    """

    def __init__(self, package: PackageFolder, request: Mapping[str, Any], reporter: StageReporter) -> None:
        self._package, self._reporter = package, reporter
        self._where = setting_locations(package)
        self._device = choose_device(str(request["device"]))
        project = str(request["project"])
        staged = native_project.stage_data(package, project)
        self._values, self._settings = native_project.resolve_settings(package, project, staged=staged)
        torch_settings.apply(self._settings, device=self._device, first=None)

    def run(self) -> None:
        """Runs all stages.

        Raises:
            RoostError: The config or the project is wrong.
            Exception: An error of the project's code.
        """
        made = native_project.dataset_class(self._settings, self._package.path, self._where)
        self._reporter.done(format_classes(self._settings.dataset))
        self._reporter.begin("data")
        data = native_project.build_data(made(self._values), self._settings)
        with self._reporter.recording_warnings():
            splits = data_loaders.build_loaders(
                data,
                self._settings,
                device=torch.device(self._device),
                batches_per_step=self._settings.gradient_accumulation_steps,
                where=self._where,
            )
        sets = {
            name: data_loaders.format_set_size(one) for name, one in data_loaders.named_sets(data).items()
        }
        self._reporter.done(", ".join(f"{name} {size}" for name, size in sets.items()))
        for name, batches in splits.items():
            self._reporter.begin(name)
            with closing(batches):
                self._reporter.done(self._look(name, batches, data))

    def _look(self, name: str, batches: Batches, data: Data) -> str:
        """Reports one set and returns a summary in a few words. Every finding is written at once, in case a
        later sample raises."""
        split = self._split(name, batches, data)
        self._note(split)
        if isinstance(batches, Loader):
            batches.resolve_num_workers()
        reasons = batches.inexact_reasons()
        split = msgspec.structs.replace(
            split,
            num_workers=batches.num_workers,
            workers=batches.worker_count_reason,
            seeds=_seed_finding(batches, reasons),
            inexact=reasons,
        )
        self._note(split)
        drawing = BatchTimer()
        try:
            drawing.draw(batches.epochs() if name == "train" else batches.once())
        finally:
            times = drawing.times(batches.num_workers)
            self._note(msgspec.structs.replace(split, batch=drawing.batch, times=times))
        return _timing_summary(times)

    def _split(self, name: str, batches: Batches, data: Data) -> SplitReport:
        sets = {
            one: dataset
            for one, dataset in data_loaders.named_sets(data).items()
            if one == name or (name == "train" and one.startswith("train/"))
        }
        descriptions = [describe_set(one, dataset) for one, dataset in sets.items()]
        number = _num_batches(batches)
        steps = None
        if name == "train" and number is not None:
            steps = -(-number // self._settings.gradient_accumulation_steps)
        found = None
        if isinstance(batches, Loader):
            # With several joined sets the plan's indices are not indices into one column of lengths.
            lengths = (
                sample_column(batches.dataset, "lengths")
                if descriptions[0].lengths and len(sets) == 1
                else None
            )
            found = batch_sizes(batches.plan, lengths)
        return SplitReport(
            name=name,
            sets=descriptions,
            plan=batches.describe(),
            num_batches=number,
            num_steps=steps,
            sizes=found,
        )

    def _note(self, split: SplitReport) -> None:
        self._reporter.record_measurements(**{split.name: msgspec.to_builtins(split)})


def _num_batches(batches: Batches) -> int | None:
    try:
        return len(batches)
    except ConfigError:  # a stream that is only evaluated needs no length
        return None


def _seed_finding(batches: Batches, reasons: list[str]) -> str:
    if batches.seeding_unknown_reason:
        return f"unknown: {batches.seeding_unknown_reason}"
    if not isinstance(batches, Loader | Stream):
        return "not tested: an external loader draws its batches itself"
    if reasons:
        return "not followed: a sample drawn twice differs"
    draws = (
        batches.fetch.draws_randomness
        if isinstance(batches, Loader)
        else getattr(batches.dataset, "draws_randomness", True)
    )
    return "followed: a sample drawn twice is the same" if draws else "the set draws nothing at random"


def _timing_summary(times: LoadingTimes | None) -> str:
    if times is None:
        return "no batch"
    number, each = times.num_batches, times.batch
    pace = "" if each is None else f", {format_short_duration(each)} each"
    return f"{number:,} batch{'es' * (number != 1)}{pace}"
