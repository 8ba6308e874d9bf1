"""The evaluate task: one rank of a session that computes the grid of an evaluation."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from roost.base import durable
from roost.base.errors import CheckpointError, ConfigError, NotFound, Refused
from roost.config.step_modes import STEP_MODES
from roost.evaluation import cell as cells
from roost.evaluation import cell_end, cell_run, evaluated_set, grid, summary
from roost.evaluation.cell import CellFile, CellIdentity
from roost.evaluation.cell_run import CellLoop, Share
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.grid import Grid, GridCell, GridCheckpoint
from roost.evaluation.reports import report_files
from roost.evaluation.sample_values import SampleValues, is_metric
from roost.package import sessions
from roost.package.checkpoints import checkpoint, selection
from roost.package.checkpoints.weight_selectors import WeightSelector
from roost.package.live_progress import PHASES, ProgressFile
from roost.package.package import PackageFolder, with_overrides
from roost.package.results import evaluations, row_files
from roost.package.session_folder import SessionFolder
from roost.package.setting_locations import setting_locations
from roost.project import native_project
from roost.project.contract import Runner
from roost.project.device_choice import choose_device
from roost.project.loaded_model import LoadedExperiment, load_experiment
from roost.train.evaluation import split_evaluation
from roost.train.model.module_state import ModuleState
from roost.train.step import precision
from roost.train.step.compilation import CompiledFunctions, exclude_log
from roost.train.weights import weight_files
from roost.train.weights.weight_loader import WeightFit
from roost.worker import torch_settings
from roost.worker.analyze_task import initial_environment
from roost.worker.ranks import rank_environment
from roost.worker.results import weight_mean
from roost.worker.results.weight_mean import WeightMean

_ANOTHER_NAME = "give the evaluation another --name: what is there is kept"


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
    _run(package, folder, device, share, applies_settings=True)
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
        share = Share(rank=rank, world_size=world_size, session=0)
        _run(package, folder, device, share, applies_settings=False)
    finally:
        if lock_fd is not None:
            os.close(lock_fd)


def _run(package: PackageFolder, folder: Path, device: str, share: Share, *, applies_settings: bool) -> None:
    request = sessions.load_json(folder / evaluations.REQUEST) or {}
    evaluated = _EvaluatedPackage(package.path, request["overrides"])
    if applies_settings:
        _, settings = native_project.resolve_settings(evaluated, request["project"])
        torch_settings.apply(settings, device=device, first=initial_environment(package))
    loaded = load_experiment(
        evaluated,
        untrained=True,
        device=device,
        project=request["project"],
        preparing=cells.locked_folder(folder),
    )
    _Evaluation(package=evaluated, folder=folder, request=request, loaded=loaded, share=share).run()


def _device(package: PackageFolder, folder: Path, session: int) -> str:
    found = next(one for one in SessionFolder(folder, package.path).sessions() if one.number == session)
    return str(found.request.device or "auto")


class _Evaluation:
    """The work of one rank in one session.

    Args:
        package: The package, with the overrides of the evaluation.
        folder: The folder of the evaluation.
        request: The content of its request.json.
        loaded: The Runner and the data.
        share: The rank's share of each cell.
    """

    def __init__(
        self,
        *,
        package: PackageFolder,
        folder: Path,
        request: Mapping[str, Any],
        loaded: LoadedExperiment,
        share: Share,
    ) -> None:
        self._package, self._folder, self._request = package, folder, request
        self._runner, self._settings, self._share = loaded.runner, loaded.settings, share
        self._precision = self._settings.evaluation_precision or self._settings.precision
        precision.require_supported(self._precision, self._runner.device, setting="evaluation_precision")
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
        for name, arguments in self._request["variants"].items():
            cell_run.require_arguments(_signature_source(self._runner), name, arguments)
        found = grid.open_grid(self._folder, self._make_grid)
        self._require_unchanged(found)
        self._check_stack(found)
        torch.set_num_threads(found.threads)
        progress = _Progress(self._folder, found, self._share)
        for weights, waiting in found.by_checkpoint():
            self._load_weights(weights)
            for one in waiting:
                self._run_cell(found, one, progress)
        cell_end.finish_evaluation(self._folder)
        progress.publish("ended")

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
                fix=_ANOTHER_NAME,
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
                f"inexact: the evaluation began on {found.device}, and goes on on {now}, which rounds "
                "differently",
                flush=True,
            )

    # ---- the grid ---------------------------------------------------------------------------------------

    def _make_grid(self) -> Grid:
        selectors = [msgspec.convert(one, WeightSelector) for one in self._request["checkpoints"]]
        checkpoints = [(one.folder, self._resolve(one)) for one in selectors]
        variants: dict[str, dict[str, Any]] = self._request["variants"]
        code, data = self._digests
        known = grid.finished_cells(self._package.path, without=self._folder)
        made = []
        for folder, weights in checkpoints:
            for variant, arguments in variants.items():
                for name, one in self._sets.items():
                    key = grid.cell_folder(
                        self._request["template"], variant=variant, checkpoint=folder, dataset=name
                    )
                    identity = CellIdentity(
                        weights=weights.sha256,
                        variant=cells.variant_digest(arguments),
                        code=code,
                        data=data[name],
                    )
                    made.append(
                        GridCell(
                            key=key,
                            variant=variant,
                            checkpoint=weights.name,
                            dataset=name,
                            folder=key,
                            identity=identity,
                            samples=len(one.ids),
                            batches=len(one.sizes),
                        )
                    )
        _require_different(made, self._request["template"])
        made = [self._found_again(one, known, variants) for one in made]
        if copied := [one for one in made if one.found_in is not None]:
            where = sorted({str(Path(str(one.found_in)).parts[1]) for one in copied})
            print(f"{len(copied)} of {len(made)} cells are found again in {', '.join(where)}", flush=True)
        return Grid(
            checkpoints=[weights for _, weights in checkpoints],
            variants=variants,
            cells=grid.with_twins(made),
            threads=torch.get_num_threads(),
            device=self._runner.device.type,
        )

    def _found_again(
        self, one: GridCell, known: Mapping[CellIdentity, Path], variants: Mapping[str, dict[str, Any]]
    ) -> GridCell:
        """Returns a cell, copied if another evaluation of the package has finished the same."""
        source = known.get(one.identity)
        if source is None:
            return one
        final = self._folder / one.folder
        grid.copy_cell(source, final)
        self._rename_cell(final, one, variants)
        found_in = str(source.relative_to(self._package.path))
        return msgspec.structs.replace(one, state="finished", found_in=found_in)

    def _rename_cell(self, folder: Path, one: GridCell, variants: Mapping[str, dict[str, Any]]) -> None:
        """Gives a copied cell the names that it has in this grid."""
        copied = cells.read_cell(folder)
        assert copied is not None
        own = msgspec.structs.replace(
            copied, variant=one.variant, arguments=variants[one.variant], checkpoint=one.checkpoint
        )
        cells.write_cell(folder, own)

    def _resolve(self, selector: WeightSelector) -> GridCheckpoint:
        """Returns the weights that a selector means now."""
        if selector.file is not None:
            source = weight_files.read(Path(selector.file))
            return GridCheckpoint(name=selector.name, file=selector.file, sha256=source.sha256)
        chosen = selector.checkpoints
        assert chosen is not None
        ids = selection.candidates(self._package, chosen)[: chosen.count]
        if len(ids) < chosen.count:
            has = "there is 1" if len(ids) == 1 else f"there are {len(ids)}"
            print(f"{selector.name} requests {chosen.count} checkpoints, but {has}", flush=True)
        digest = self._mean_digest(ids, selector.average)
        return GridCheckpoint(name=selector.name, ids=ids, average=selector.average, sha256=digest)

    def _mean_digest(self, ids: Sequence[int], average: str | None) -> str:
        """Returns the digest of the mean of checkpoints, from their manifests."""
        parts = [str(_weights_digest(self._package, id, average)) for id in ids]
        return parts[0] if len(parts) == 1 else cells.joined_digest(parts)

    # ---- weights ----------------------------------------------------------------------------------------

    def _load_weights(self, weights: GridCheckpoint) -> None:
        if weights.file is not None:
            self._load_file(weights, Path(weights.file))
        else:
            self._load_checkpoints(weights)
        self._runner.eval()
        if self._share.rank == 0:
            print(f"{weights.name}: {_describe(weights)}; {self._runner.device}", flush=True)

    def _load_checkpoints(self, weights: GridCheckpoint) -> None:
        mean, module = WeightMean(), None
        for id in weights.ids:
            path = checkpoint.checkpoint_folder(self._package.checkpoints, id)
            try:
                info, found = weight_mean.read_weights(path, average=weights.average)
            except (NotFound, FileNotFoundError) as error:
                if path.exists():
                    raise
                raise NotFound(
                    f"checkpoint {id}, which {weights.name} meant when the evaluation began, is gone",
                    where=self._package.path,
                    fix="give the evaluation another --name; keep checkpoints with a track or a hold",
                ) from error
            module = module or found
            mean.add(info, dict(found["state"]))
        if self._mean_digest(weights.ids, weights.average) != weights.sha256:
            raise CheckpointError(
                f"the weights of {weights.name} have changed since the evaluation began",
                where=self._package.path,
                fix=_ANOTHER_NAME,
            )
        assert module is not None
        ModuleState(self._runner).load_state_dict({**module, "state": mean.weights()})

    def _load_file(self, weights: GridCheckpoint, path: Path) -> None:
        source = weight_files.read(path)
        if source.sha256 != weights.sha256:
            raise CheckpointError(
                "the file has changed since the evaluation began",
                where=path,
                fix="give the evaluation another --name",
            )
        fit = WeightFit(self._runner, source.weights, {})
        if wrong := fit.report.problems(missing=True):
            raise CheckpointError(
                f"the weights do not fit the Runner: {'; '.join(wrong)}",
                where=path,
                fix="name a file with the weights of this Runner: `roost export --weights` makes one",
            )
        fit.load()

    # ---- cells ------------------------------------------------------------------------------------------

    def _run_cell(self, found: Grid, one: GridCell, progress: _Progress) -> None:
        folder, evaluated = self._folder / one.folder, self._sets[one.dataset]
        arguments = found.variants[one.variant]
        with cells.locked_folder(self._folder):
            cells.prepare_cell(folder, self._cell_file(found, one, evaluated))
        if not (folder / evaluations.SUMMARY).is_file():
            finished = cells.finished_batches(folder, len(evaluated.sizes))
            progress.begin(one, finished, evaluated)
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
        if cell_end.finish_cell(folder, evaluated, self._runner):
            self._note_finished(found, one)

    def _check_values(self, values: SampleValues) -> None:
        """Checks that the metrics of `Runner.worst_cases` are among the numbers of the samples."""
        summary.check_cases(
            cell_end.worst_cases(self._runner) or (),
            [name for name, column in values.columns.items() if is_metric(column)],
            setting="Runner.worst_cases",
        )

    def _note_finished(self, found: Grid, one: GridCell) -> None:
        """Marks a cell as finished, and copies it to the later cells that are the same."""
        folder = self._folder / one.folder
        skipped = len(evaluations.skipped(evaluations.read_rows(folder, ["id", "error"])))
        changes: dict[str, dict[str, Any]] = {one.key: {"state": "finished", "skipped": skipped}}
        for twin in (cell for cell in found.cells if cell.same_as == one.key and cell.state != "finished"):
            with cells.locked_folder(self._folder):
                grid.copy_cell(folder, self._folder / twin.folder)
                self._rename_cell(self._folder / twin.folder, twin, found.variants)
            changes[twin.key] = {"state": "finished", "skipped": skipped}
        before = grid.read_grid(self._folder)
        is_new = before is not None and any(
            cell.key == one.key and cell.state != "finished" for cell in before.cells
        )
        after = grid.change_cells(self._folder, changes)
        if is_new:
            done = sum(cell.state == "finished" for cell in after.cells)
            print(f"{one.key}: {one.samples:,} samples; {done} of {len(after.cells)} cells", flush=True)

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
            exclude_log(runner)
            compiled = CompiledFunctions(dynamic=self._settings.compile_dynamic)
            return compiled.evaluation(runner.evaluate, "test", functools.partial(print, flush=True))
        return functools.partial(runner.test, **arguments)

    @contextmanager
    def _forward(self) -> Iterator[None]:
        with (
            split_evaluation.evaluation_mode(self._runner),
            precision.autocast_context(self._precision, self._runner.device),
        ):
            yield


def _signature_source(runner: Runner) -> Callable[..., Any]:
    """Returns the function that takes the arguments of variants: `test`, or `evaluate` if that is its
    default."""
    kind = type(runner)
    return kind.evaluate if getattr(kind.test, "is_default", False) else kind.test


def _describe(weights: GridCheckpoint) -> str:
    if weights.file is not None:
        return f"weights of {weights.file}"
    numbers = ", ".join(map(str, weights.ids))
    if len(weights.ids) > 1:
        return f"the mean of checkpoints {numbers}"
    average = f", the average {weights.average}" if weights.average else ""
    return f"weights of checkpoint {numbers}{average}"


def _weights_digest(package: PackageFolder, id: int, average: str | None) -> str | None:
    info = checkpoint.read_manifest(checkpoint.checkpoint_folder(package.checkpoints, id))
    digest, _ = checkpoint.tensor_digest(info, "model")
    if average is None:
        return digest
    of_hooks, _ = checkpoint.tensor_digest(info, "trainer")
    return cells.joined_digest([str(digest), str(of_hooks), average])


_SESSIONS = ("sessions", "system", "blackbox", "profile", "lock", "progress", "_output.txt")
_RESULTS = (evaluations.REQUEST, evaluations.CELLS, report_files.MARKDOWN, report_files.HTML)
_OWN_NAMES = frozenset([*_SESSIONS, *_RESULTS])
"""What a folder of an evaluation has beside its cells."""
_MAX_NAME_BYTES = 220
"""Of a folder; file systems take 255, and a staging name adds 20."""


def _mistake(folder: Path) -> str | None:
    """Returns what is wrong with the folder of a cell, below that of the evaluation; None if nothing is."""
    parts = folder.parts
    if folder.is_absolute() or ".." in parts or not parts:
        return "it is not inside the evaluation"
    if parts[0] in _OWN_NAMES:
        return f"the evaluation has its own {parts[0]}"
    if any("\0" in one or durable.is_staging(one) for one in parts):
        return "a name in it is not valid"
    if any(len(os.fsencode(one)) > _MAX_NAME_BYTES for one in parts):
        return f"a name in it is longer than {_MAX_NAME_BYTES} bytes"
    return None


def _require_different(made: Sequence[GridCell], template: str) -> None:
    seen: dict[str, GridCell] = {}
    for one in made:
        if (mistake := _mistake(Path(one.key))) is not None:
            raise ConfigError(
                f"this is no folder for a cell: {mistake}",
                setting="--template",
                received=one.key,
                fix=f"write it as {grid.DEFAULT_TEMPLATE}, or rename the variant or the set",
            )
        if one.key in seen:
            other = seen[one.key]
            raise ConfigError(
                f"two cells have the same folder {one.key}: {other.variant}, {other.checkpoint}, "
                f"{other.dataset} and {one.variant}, {one.checkpoint}, {one.dataset}",
                setting="--template",
                received=template,
                fix=f"name all three in it: {grid.DEFAULT_TEMPLATE}",
            )
        seen[one.key] = one


class _Progress:
    """The position in the grid, by this rank's share: published by rank 0, for the bar and the list of
    tasks."""

    def __init__(self, folder: Path, found: Grid, share: Share) -> None:
        self._board = ProgressFile(folder / "progress") if share.rank == 0 else None
        self._total = sum(one.samples for one in found.cells if one.same_as is None)
        self._before = sum(
            one.samples for one in found.cells if one.same_as is None and one.state == "finished"
        )
        self._share, self._began = share, time.monotonic()
        self._cell_total, self._cell_done = 0, 0.0
        self._cells, self._cell = len(found.cells), sum(one.state == "finished" for one in found.cells)
        self._computed = 0
        self._is_first = True

    def begin(self, one: GridCell, finished: set[int], evaluated: EvaluatedSet) -> None:
        """Begins a cell: counts the batches that have rows already."""
        own = range(self._share.rank, len(evaluated.sizes), self._share.world_size)
        all_own = sum(evaluated.sizes[number] for number in own)
        rest = sum(evaluated.sizes[number] for number in own if number not in finished)
        self._before += self._cell_total if not self._is_first else 0
        self._is_first = False
        self._cell += 1
        self._cell_total, self._cell_done = one.samples, one.samples * (1 - rest / all_own) if all_own else 0
        self._scale = one.samples / all_own if all_own else 0.0
        self.publish("testing")

    def advance(self, samples: int) -> None:
        """Counts samples of this rank."""
        self._computed += samples
        self._cell_done += samples * self._scale
        self.publish("testing")

    def publish(self, phase: str) -> None:
        """Publishes the position."""
        if self._board is None:
            return
        seconds = time.monotonic() - self._began
        done = min(self._total, self._before + self._cell_done) if phase != "ended" else self._total
        fraction = done / self._total if self._total else 1.0
        computed = self._computed * self._share.world_size
        rate = computed / max(seconds, 1e-9)
        # The remaining time is estimated as seconds x (1 / fraction - 1): what earlier sessions computed must
        # not make it look faster.
        shown = done / rate if rate else seconds
        self._board.publish(
            self._cell, 0, 0, PHASES.index(phase), self._cells, 0, int(done), shown, rate, fraction
        )
