"""The state of a run of a project of DLNest: the parts of its checkpoints.

==========  ================================================================================================
dlnest      what the project's ``getSaveDict`` methods return, and its log
loop        the position in the loop, the progress, what was recorded
rank-<n>    the random generators of a rank, the beginning of its pass over the data, the attributes of its
            objects that training has changed; of ranks other than 0 their own log, too
==========  ================================================================================================
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import CheckpointError
from roost.package.checkpoints.checkpoint import Manifest
from roost.project.dlnest.classes.torch_runner import RunnerBaseTorch
from roost.project.dlnest.epoch_batches import EpochBatches, own_state, restore_own_state
from roost.project.dlnest.log_recorder import LogRecorder
from roost.project.dlnest.object_attributes import ObjectAttributes
from roost.project.dlnest.project_loading import DlnestProject
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import Ranks
from roost.train.inexact_reasons import InexactReasons
from roost.train.progress import Progress
from roost.train.step import seeding

PROJECT, LOOP = "dlnest", "loop"
MODULE_NAMES = "module_names"
"""The key of the loop's part with the attributes of the runner's modules, by the number in its state."""
_FIRST_RANK = "rank-0"
OWN_OF_RANK = ("life_cycle", "dataset", "log_dict")
"""What a rank other than 0 saves of its project: its weights are those of rank 0."""


class LoopPhase(enum.IntEnum):
    """The position within an epoch, in order. A checkpoint is saved at one of these."""

    EPOCH = 0
    """Before an epoch."""
    STEP = 1
    """Between two steps, or after the last one."""
    VALIDATION = 2
    """Before the validation, which was decided on."""
    SAVED = 3
    """After the project's own save; ``ASaveModel`` and ``AOneEpoch`` are still to be called."""


class SavedPart:
    """A part of a checkpoint: a state to save, or one that was read.

    Args:
        state: The state.
        optional: Whether a checkpoint may lack the part.
    """

    def __init__(self, state: dict[str, Any] | None = None, *, optional: bool = False) -> None:
        self.state, self.optional = state or {}, optional

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes the state that was read."""
        self.state = state


def rank_part(ranks: Ranks) -> str:
    """Returns the name of a rank's own part."""
    return f"rank-{ranks.rank}"


def read(
    checkpoints: Checkpoints, ranks: Ranks, *, id: int | None = None
) -> tuple[Manifest | None, dict[str, dict[str, Any]], list[str]]:
    """Reads checkpoint ``id``, or the newest good one; all ranks must call it. See `Checkpoints.load`.

    Returns:
        Its manifest, None if there is none; its states by part, those of rank 0 and of this rank, which is
        empty if the checkpoint was saved by fewer ranks; and a line for each damaged one that was set aside.
    """
    parts = {
        PROJECT: SavedPart(),
        LOOP: SavedPart(),
        rank_part(ranks): SavedPart(optional=not ranks.is_main),
        _FIRST_RANK: SavedPart(),
    }
    manifest, lines = checkpoints.load(parts, id=id)
    return manifest, {name: part.state for name, part in parts.items()}, lines


def _saved_attributes(states: Mapping[str, dict[str, Any]], ranks: Ranks) -> dict[str, Any]:
    """Returns the attributes that a checkpoint has for a rank. One that it does not know gets those of
    rank 0, as it gets rank 0's log, but for the random generators."""
    own = states[rank_part(ranks)]
    if own:
        found: dict[str, Any] = own["attributes"]
        return found
    first = states[_FIRST_RANK]["attributes"]
    return {name: entry for name, entry in first.items() if "generator" not in entry}


def project_state(states: Mapping[str, dict[str, Any]], ranks: Ranks) -> dict[str, Any]:
    """Returns the project's state for this rank, to be loaded: the project may keep and change all but the
    tensors of the runner."""
    found = {**states[PROJECT], **states[rank_part(ranks)].get("project", {})}
    return {name: copy.deepcopy(one) if name in OWN_OF_RANK else one for name, one in found.items()}


def host_copy(state: Any) -> Any:
    """Returns a copy of a state in the memory of the host, which later steps do not change."""
    memo: dict[int, Any] = {}
    kept = []  # an id is valid only as long as its object
    for one in _tensors_and_numbers(state):
        if isinstance(one, list):
            memo[id(one)] = list(one)
            continue
        own = one.detach()
        kept.append(own)
        memo[id(one)] = copy.deepcopy(own, memo) if own.device.type == "cpu" else own.cpu()
    return copy.deepcopy(state, memo)


def _tensors_and_numbers(value: Any) -> Iterator[Tensor | list[Any]]:
    """Yields the tensors, and the lists of numbers: `copy.deepcopy` of a long one is slow."""
    stack, seen = [value], set[int]()
    while stack:
        one = stack.pop()
        if isinstance(one, Tensor) or (type(one) is list and set(map(type, one)) <= {int, float}):
            yield one
        elif isinstance(one, Mapping | list | tuple) and id(one) not in seen:  # one may contain itself
            seen.add(id(one))
            stack.extend(one.values() if isinstance(one, Mapping) else one)


class RunState:
    """Everything of a run that survives its session.

    Args:
        project: The project, built.
        saved: The parts of the checkpoint from which the run continues (`read`); None: it begins.
        was_finished: Whether the run had finished, and is to be trained at least one epoch more.
        seed: The seed of a rank whose state no checkpoint has.
        has_own_seed: Whether ranks other than 0 draw random numbers of their own.
    """

    def __init__(
        self,
        project: DlnestProject,
        *,
        saved: Mapping[str, dict[str, Any]] | None,
        was_finished: bool,
        seed: int,
        has_own_seed: bool,
    ) -> None:
        self.project, self.ranks = project, project.ranks
        self._saved, self._was_finished = saved, was_finished
        self._seed, self._has_own_seed = seed, has_own_seed and not self.ranks.is_main
        self.progress, self.phase = Progress(), LoopPhase.EPOCH
        self.epoch = 0
        """The number of the epoch, from 0; `progress` counts the ended ones."""
        self.finished = False
        self.must_train = False
        """Whether the next answer of needContinueTrain does not count."""
        self.num_scheduled = 0
        """The number of the project's own saves."""
        self.inexact = InexactReasons(self.ranks)
        self.rows = LogRecorder(project)
        self.batches = EpochBatches(project.train_loader, note_inexact=self.inexact.note)
        roots = {"LifeCycle": project.life_cycle, "Dataset": project.dataset, "Runner": project.runner}
        self._attributes = ObjectAttributes(
            {name: one for name, one in roots.items() if one is not None},
            package=project.package.path,
            device=project.device,
            log=lambda: project.log,
            constants=[project.args, project.info],
            note_inexact=self.inexact.note,
        )

    def show(self, *, validating: bool = False) -> None:
        """Sets the status that the project sees."""
        status = self.project.status
        status.epoch, status.status = self.epoch, "Validating" if validating else "Training"

    def parts(self) -> dict[str, SavedPart]:
        """Returns what a checkpoint holds of this rank."""
        project = self.project.save_dict()
        own = {
            "rng": seeding.rng_state(),
            "pass": self.batches.state() if self.phase is LoopPhase.STEP else None,
            "loaders": [own_state(one) for one in self._loaders],
            "attributes": self._attributes.state_dict(),
        }
        if not self.ranks.is_main:
            own["project"] = {name: project[name] for name in OWN_OF_RANK if name in project}
        return {
            PROJECT: SavedPart(project),
            LOOP: SavedPart(self._loop_state()),
            rank_part(self.ranks): SavedPart(own),
        }

    @property
    def _loaders(self) -> list[Any]:
        return [self.project.train_loader, self.project.valid_loader]

    def _loop_state(self) -> dict[str, Any]:
        return {
            "progress": self.progress.state_dict(),
            "phase": int(self.phase),
            "epoch": self.epoch,
            "finished": self.finished,
            "rows": self.rows.state_dict(),
            "num_scheduled": self.num_scheduled,
            "inexact": self.inexact.texts,
            MODULE_NAMES: names() if (names := getattr(self.project.runner, "_module_names", None)) else {},
        }

    def load_position(self) -> None:
        """Loads the position in the loop, before anything of the project is called."""
        if self._saved is None:
            self.rows.skip_initial()
            return
        state = self._saved[LOOP]
        self.progress.load_state_dict(state["progress"])
        self.phase, self.epoch = LoopPhase(state["phase"]), state["epoch"]
        self.rows.load_state_dict(state["rows"])
        self.num_scheduled = state["num_scheduled"]
        # A run that was killed between its last save and its end has nothing left to do.
        self.finished = state["finished"] and not self._was_finished
        self.must_train = self._was_finished and self.phase is LoopPhase.SAVED
        if self._was_finished and self.ranks.is_main:
            print("the run had ended: one more epoch is trained, then needContinueTrain decides", flush=True)
        self.inexact.load(state["inexact"])

    def restore(self) -> None:
        """Calls BOneEpoch if the session continues within an epoch. Then loads all state again, which BTrain
        and BOneEpoch may have changed, the random generators last.

        Raises:
            CheckpointError: The checkpoint does not say where this rank is within the epoch.
        """
        own = self._saved[rank_part(self.ranks)] if self._saved is not None else None
        if self.phase is not LoopPhase.EPOCH:
            self.show()
            self.project.calls.before("BOneEpoch")
        self._attributes.begin()
        if self._saved is not None:
            self._load_project(project_state(self._saved, self.ranks))
            self._note_taken_steps()
        if self._saved is not None:
            self._attributes.load_state_dict(_saved_attributes(self._saved, self.ranks))
        if own and self.phase is LoopPhase.STEP:
            epoch = self.epoch if self.ranks.are_several else None
            self.batches.resume(own["pass"], self.progress.batch, epoch=epoch)
            self._attributes.load_state_dict(own["attributes"])  # a set may have generators of its own
        elif self.phase is LoopPhase.STEP:
            raise CheckpointError(
                "the checkpoint was saved within an epoch, by fewer ranks: this one has no place in its data",
                fix="continue with as many ranks as before, or from a checkpoint at the end of an epoch: "
                "roost continue -c ID",
            )
        if own:
            for loader, state in zip(self._loaders, own["loaders"], strict=True):
                is_within = self.phase is LoopPhase.STEP and loader is self.project.train_loader
                restore_own_state(loader, state, generators_only=is_within)
            for reason in seeding.set_rng_state(own["rng"]):
                self.inexact.note(reason)
        elif self._has_own_seed:
            seeding.seed_all(seeding.mix(self._seed, "train", self.ranks.rank, self.progress.step))

    def _load_project(self, state: Mapping[str, Any]) -> None:
        log = self.project.log
        self.project.load_save_dict(state)
        if self.project.log is not log:  # the project may have kept the one that it has seen
            loaded = dict(self.project.log)
            log.clear()
            log.update(loaded)
            self.project.log = log

    def _note_taken_steps(self) -> None:
        """Marks optimizers that have stepped in an earlier session: torch would warn of a scheduler that
        steps before them."""
        runner = self.project.runner
        named = runner._named("optimizer") if isinstance(runner, RunnerBaseTorch) else vars(runner)
        for value in named.values():
            if isinstance(value, torch.optim.Optimizer) and self.progress.step:
                value._opt_called = True  # type: ignore[attr-defined]
