"""Package kinds and task kinds: the words that request files hold, and what each of them implies; and the
kinds of which the lab queues tasks."""

# Standard library only

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

CELL_TEMPLATE = "{variant}/{checkpoint}/{dataset}"
"""The folder of a cell of an evaluation below that of the evaluation, unless another one is asked for."""


class PackageKind(StrEnum):
    """The kind of a package, ``kind`` in its request.json."""

    TRAIN = "train"
    """A training by `Runner` and `Dataset`."""
    DLNEST = "dlnest"
    """A training by a project of DLNest's contract."""
    PYTHON = "python"
    """A loop of the user's own, by the Python API; `roost continue` needs a Runner."""
    COMMAND = "command"
    """Any program, in a copy of its code or where it was typed."""

    IMPORT = "import"
    """The records of a run of another system: no session of it can be started."""

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> PackageKind:
        """Returns the kind of the package with this request.json; a training where it names no known kind."""
        try:
            return cls(str(request.get("kind", cls.TRAIN)))
        except ValueError:
            return cls.TRAIN

    @property
    def trains(self) -> bool:
        """Whether the package's own code is trained, by sessions that roost starts."""
        return self in (PackageKind.TRAIN, PackageKind.DLNEST)


class TaskKind(StrEnum):
    """The kind of work of a worker or a session: ``kind`` in the requests of sessions, analyses, predictions
    and exports, or an argument of the worker.

    ========= ===================================== ======================
    kind      locks, and has a number in sessions/  keeps a traceback file
    ========= ===================================== ======================
    train     of the package                        yes
    command   of the package                        it is no worker
    python    of the package                        it is no worker
    analyze                                         yes
    predict
    evaluate
    export
    check     of a copy, which is removed
    data      of a copy, which is removed
    tune      of a copy, which is removed
    debug
    ========= ===================================== ======================
    """

    TRAIN = "train"
    COMMAND = "command"
    """A program of the user, in place of a worker."""
    PYTHON = "python"
    """A program of the user has opened the package: it has no supervisor, and must not be signalled."""
    ANALYZE = "analyze"
    PREDICT = "predict"
    EVALUATE = "evaluate"
    EXPORT = "export"
    CHECK = "check"
    DATA_REPORT = "data"
    TUNE = "tune"
    DEBUG = "debug"

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> TaskKind:
        """Returns the kind of a request in a folder of its own: an analysis where it names no known kind."""
        word = str(request.get("kind", cls.ANALYZE))
        try:
            return cls(_FORMER_WORDS.get(word, word))
        except ValueError:
            return cls.ANALYZE

    @property
    def keeps_traceback(self) -> bool:
        """Whether the whole traceback of a failed worker is stored, because its folder remains."""
        return self in (TaskKind.TRAIN, TaskKind.ANALYZE)


_FORMER_WORDS = {"analysis": TaskKind.ANALYZE, "prediction": TaskKind.PREDICT}
"""The words of older packages."""


class KindTraits(NamedTuple):
    """The traits of a kind of tasks of the lab: its names, and how such a task uses its package."""

    letter: str
    """The letter of its labels."""
    noun: str
    """The kind for people."""
    folder: str | None = None
    """The folder of the package that has a session folder for each such task; None: the package itself is the
    session folder."""
    is_interactive: bool = False
    """Whether the task mostly waits for its user: without a request for cores it counts as none, and a time
    without output is no stall."""
    has_names: bool = False
    """Whether the session folders have names of their own; else their names are numbers."""
    may_have_ranks: bool = False
    """Whether such a task, which reads a package, may have several cards, with a rank on each."""

    @property
    def locks_package(self) -> bool:
        """Whether the task takes the package's lock and a number in ``sessions/``, so that a package has one
        such session at a time. The others only read the package."""
        return self.folder is None


TASK_KINDS: Mapping[TaskKind, KindTraits] = {
    TaskKind.TRAIN: KindTraits("T", "training"),
    TaskKind.COMMAND: KindTraits("C", "command"),
    TaskKind.ANALYZE: KindTraits("A", "analyzer", "analyzers", is_interactive=True),
    TaskKind.PREDICT: KindTraits("P", "prediction", "predictions"),
    TaskKind.EVALUATE: KindTraits("E", "evaluation", "evaluations", has_names=True, may_have_ranks=True),
}
"""The kinds of which the lab queues tasks. All that the queue, the executors, the routes and the shells know
of a kind is here."""


def traits_of(kind: str) -> KindTraits:
    """Returns the traits of a task's kind. Raises ValueError for a kind that the lab does not queue."""
    try:
        return TASK_KINDS[TaskKind(kind)]
    except KeyError:
        raise ValueError(f"no task of the lab is of the kind {kind!r}") from None


def task_label(kind: str, seq: int) -> str:
    """Returns the label of a task, such as ``A_13``: the letter of its kind and its number in the queue."""
    return f"{traits_of(kind).letter}_{seq}"
