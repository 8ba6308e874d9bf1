"""The evaluate task: one rank of a session that computes the grid of an evaluation."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from roost.base.errors import Refused
from roost.config.step_modes import STEP_MODES
from roost.evaluation import cell as cells
from roost.evaluation import cell_copies, cell_end, evaluated_set, grid, variant_arguments
from roost.evaluation.cell_run import CellLoop, Share
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.sample_values import SampleValues, is_metric
from roost.evaluation.summaries import summary
from roost.package import sessions
from roost.package.checkpoints.weight_selectors import WeightSelector
from roost.package.package import PackageFolder, with_overrides
from roost.package.results.evaluations import evaluation_folder, row_files
from roost.package.results.evaluations.evaluation_folder import CellFile, Grid, GridCell, GridCheckpoint
from roost.package.session_folder import SessionFolder
from roost.package.setting_locations import setting_locations
from roost.project import native_project
from roost.project.device_choice import choose_device
from roost.project.loaded_model import LoadedExperiment, load_experiment
from roost.train.evaluation import split_evaluation
from roost.train.step import precision
from roost.train.step.compilation import compiled_evaluation
from roost.worker import torch_settings
from roost.worker.analyze_task import initial_environment
from roost.worker.ranks import rank_environment
from roost.worker.results import grid_weights
from roost.worker.results.grid_progress import GridProgress

SESSION_OF_TRAINING = 0
"""The number under which an evaluation after a training is recorded; those of its own sessions begin at 1."""


class _EvaluatedPackage(PackageFolder):
    """A package with the overrides of an evaluation in its settings."""

    def __init__(self, path: Path, overrides: Sequence[str]) -> None:
        super().__init__(path)
        self._overrides = overrides

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the package in effect, with the overrides."""
        return with_overrides(self, super().settings, self._overrides)


def evaluate(package: PackageFolder, folder: Path, session: int) -> str:
    """Evaluates as the request in the session folder describes, and returns "finished".

    Args:
        package: The package.
        folder: The folder of the evaluation.
        session: The number of the session.

    Raises:
        RoostError: The package cannot be loaded, there is no such checkpoint or set, or `test` returns a
            wrong value. Finished cells are kept.
        BaseException: An error of the project's code.
    """
    this_rank = rank_environment.read_rank_environment()
    rank, world = (this_rank.rank, this_rank.world_size) if this_rank is not None else (0, 1)
    device = choose_device(
        _device(package, folder, session), local_rank=this_rank.local_rank if this_rank is not None else None
    )
    share = Share(rank=rank, world_size=world, session=session)
    _run(package, folder, device, share, follows_training=False)
    return "finished"


def evaluate_after_training(
    package: PackageFolder, folder: Path, *, device: str, rank: int, world_size: int
) -> None:
    """Evaluates in the process that has trained, whose settings of torch remain.

    Args:
        package: The package.
        folder: The folder of the evaluation.
        device: The device of this rank.
        rank: The rank.
        world_size: The number of ranks.

    Raises:
        RoostError: As for `evaluate`, or another session carries out the evaluation.
        Exception: An error of the project's code.
    """
    lock_fd = SessionFolder(folder, package.path).lock() if rank == 0 else None
    try:
        share = Share(rank=rank, world_size=world_size, session=SESSION_OF_TRAINING)
        _run(package, folder, device, share, follows_training=True)
    finally:
        if lock_fd is not None:
            os.close(lock_fd)


def _run(package: PackageFolder, folder: Path, device: str, share: Share, *, follows_training: bool) -> None:
    request = sessions.load_json(folder / evaluation_folder.REQUEST) or {}
    evaluated = _EvaluatedPackage(package.path, request["overrides"])
    _, settings = native_project.resolve_settings(evaluated, request["project"])
    if not follows_training:
        torch_settings.apply(settings, device=device, first=initial_environment(package))
    made = native_project.runner_class(settings, package.path, setting_locations(evaluated))
    variant_arguments.require_arguments(made, request["variants"])  # before the data, which may take minutes
    loaded = load_experiment(
        evaluated,
        untrained=True,
        device=device,
        project=request["project"],
        preparing=cells.locked_folder(folder),
    )
    training = package.progress if follows_training else None
    _Evaluation(
        package=evaluated, folder=folder, request=request, loaded=loaded, share=share, training=training
    ).run()


def _device(package: PackageFolder, folder: Path, session: int) -> str:
    found = next(one for one in SessionFolder(folder, package.path).sessions() if one.number == session)
    return str(found.request.device or "auto")


class _Evaluation:
    """Computes one rank's share of the grid in one session.

    Args:
        package: The package, with the overrides of the evaluation.
        folder: The folder of the evaluation.
        request: The content of its request.json.
        loaded: The Runner and the data.
        share: The rank's share of each cell.
        training: As in `GridProgress`.
    """

    def __init__(
        self,
        *,
        package: PackageFolder,
        folder: Path,
        request: Mapping[str, Any],
        loaded: LoadedExperiment,
        share: Share,
        training: Path | None,
    ) -> None:
        self._package, self._folder, self._request, self._training = package, folder, request, training
        self._runner, self._settings, self._share = loaded.runner, loaded.settings, share
        self._precision = self._settings.evaluation_precision or self._settings.precision
        precision.require_supported(self._precision, self._runner.device, setting="evaluation_precision")
        self._num_finished = 0
        self._open: list[str] = []
        """Cells whose last batches other ranks compute."""
        assert loaded.data is not None
        where = setting_locations(package)
        self._sets: dict[str, EvaluatedSet] = {
            name: evaluated_set.open_set(
                loaded.data, self._settings, name, device=self._runner.device, where=where
            )
            for name in evaluated_set.chosen_sets(loaded.data, request["datasets"])
        }
        if share.rank == 0:
            for line in (note for one in self._sets.values() for note in one.notes):
                print(line, flush=True)

    def run(self) -> None:
        """Computes this rank's share of all cells, and completes the cells whose last batch it computes."""
        if self._share.rank == 0:
            evaluation_folder.EvaluationFolder(self._folder).require_whole()
        found = grid.open_grid(self._folder, self._make_grid)
        self._require_unchanged(found)
        self._check_stack(found)
        torch.set_num_threads(found.threads)
        self._num_finished = sum(one.state == "finished" for one in found.cells)
        progress = GridProgress(self._folder, found, self._share, self._training)
        equal = found.equal_cells()
        for weights, waiting in found.by_checkpoint():
            self._load_weights(weights)
            for one in waiting:
                self._run_cell(found, one, equal.get(one.folder, []), progress)
        cell_end.finish_evaluation(self._folder)
        progress.end()

    def _require_unchanged(self, found: Grid) -> None:
        """Refuses to compute the rest of a grid with other code or data than those of its beginning."""
        code, data = self._digests
        waiting = [one for one in found.cells if one.state != "finished"]
        other = {one.dataset for one in waiting if one.identity.data != data.get(one.dataset)}
        changed = {f"the data of {name}" for name in other}
        if any(one.identity.code != code for one in waiting):
            changed.add("the code")
        if changed:
            verb = "has" if changed == {"the code"} else "have"
            raise Refused(
                f"{' and '.join(sorted(changed))} {verb} changed since the evaluation began",
                where=self._folder,
                fix="give the evaluation another --name: what is there is kept",
            )

    @functools.cached_property
    def _digests(self) -> tuple[str, dict[str, str]]:
        """The digests of the code, and of the data of each set by name, as they are now."""
        settings = self._package.settings
        data = {name: cells.data_digest(one, settings) for name, one in self._sets.items()}
        return cells.code_digest(self._package, settings), data

    def _check_stack(self, found: Grid) -> None:
        now = self._runner.device.type
        if found.device != now and self._share.rank == 0:
            print(
                f"inexact: the evaluation began on {found.device}, and continues on {now}, which rounds "
                "differently",
                flush=True,
            )

    # ---- the grid ---------------------------------------------------------------------------------------

    def _make_grid(self) -> Grid:
        selectors = [msgspec.convert(one, WeightSelector) for one in self._request["checkpoints"]]
        checkpoints = {one.folder: grid_weights.find_weights(self._package, one) for one in selectors}
        variants: dict[str, dict[str, Any]] = self._request["variants"]
        code, data = self._digests
        made = grid.make_cells(
            checkpoints, variants, self._sets, template=self._request["template"], code=code, data=data
        )
        made = cell_copies.copy_known(self._package.path, self._folder, made, variants)
        if copied := [one for one in made if one.found_in is not None]:
            where = sorted({str(Path(str(one.found_in)).parts[1]) for one in copied})
            print(f"{len(copied)} of {len(made)} cells are found again in {', '.join(where)}", flush=True)
        return Grid(
            checkpoints=list(checkpoints.values()),
            variants=variants,
            cells=made,
            threads=torch.get_num_threads(),
            device=self._runner.device.type,
        )

    def _load_weights(self, weights: GridCheckpoint) -> None:
        grid_weights.load_weights(self._package, weights, self._runner)
        self._runner.eval()
        if self._share.rank == 0:
            shown = grid_weights.describe_weights(weights)
            print(f"{weights.name}: {shown}; {self._runner.device}", flush=True)

    # ---- cells ------------------------------------------------------------------------------------------

    def _run_cell(
        self, found: Grid, one: GridCell, equal: Sequence[GridCell], progress: GridProgress
    ) -> None:
        folder, evaluated = self._folder / one.folder, self._sets[one.dataset]
        arguments = found.variants[one.variant]
        with cells.locked_folder(self._folder):
            cells.prepare_cell(folder, self._cell_file(found, one, evaluated))
        if not evaluation_folder.is_finished_cell(folder):
            finished = cells.finished_batches(folder, len(evaluated.sizes))
            progress.begin(finished, evaluated)
            CellLoop(
                cell=folder,
                evaluated=evaluated,
                test=self._test(arguments),
                to_device=self._runner.to_device,
                forward=self._forward,
                share=self._share,
                finished=finished,
                seed=self._settings.seed,
                skips_errors=self._request["on_step_error"] == "skip",
                advance=progress.advance,
                check=self._check_values,
            ).run()
        is_last = cell_end.finish_cell(folder, evaluated, self._runner)
        if evaluation_folder.is_finished_cell(folder):
            cell_copies.copy_to_equal_cells(self._folder, one, equal, found.variants)
        self._count_finished([one, *equal])
        if is_last:
            done = f"{self._num_finished} of {len(found.cells)} cells"
            print(f"{one.folder}: {one.samples:,} samples; {done}", flush=True)

    def _count_finished(self, computed: Sequence[GridCell]) -> None:
        """Counts the cells that are finished by now, of those that this rank has computed its share of."""
        passed = [*self._open, *(one.folder for one in computed if one.state != "finished")]
        self._open = [one for one in passed if not evaluation_folder.is_finished_cell(self._folder / one)]
        self._num_finished += len(passed) - len(self._open)

    def _check_values(self, values: SampleValues) -> None:
        """Checks that the metrics of the worst cases are among the numbers of the samples."""
        summary.check_cases(
            cell_end.worst_cases(self._runner) or (),
            [name for name, column in values.columns.items() if is_metric(column)],
        )

    def _cell_file(self, found: Grid, one: GridCell, evaluated: EvaluatedSet) -> CellFile:
        return CellFile(
            identity=one.identity,
            variant=one.variant,
            arguments=found.variants[one.variant],
            checkpoint=one.checkpoint,
            checkpoint_ids=found.checkpoint(one.checkpoint).ids,
            dataset=one.dataset,
            batches=cells.run_lengths(evaluated.sizes),
            samples=len(evaluated.ids),
            groups=list(evaluated.groups),
            format=row_files.installed_format(),
            seed=self._settings.seed,
        )

    def _test(self, arguments: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Returns `Runner.test` with the arguments of a variant; the default of it in the step mode of the
        run."""
        runner = self._runner
        is_default = getattr(type(runner).test, "is_default", False)
        if is_default and STEP_MODES[self._settings.step_mode].compiles and not arguments:
            dynamic = self._settings.compile_dynamic
            return compiled_evaluation(runner, runner.evaluate, "test", dynamic=dynamic)
        return functools.partial(runner.test, **arguments)

    @contextmanager
    def _forward(self) -> Iterator[None]:
        with (
            split_evaluation.evaluation_mode(self._runner),
            precision.autocast_context(self._precision, self._runner.device),
        ):
            yield
