"""What a person has chosen in the client: the selection, marks, filter, order, folded sweeps, the watched
analyzer. Without a terminal; `ViewState.refresh` makes the list of the tasks pane from a `LabState`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from roost.base.errors import UsageError
from roost.package.kinds import TaskKind

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabState, LabSweep, LabTask
    from roost.operations.task_results import TaskRow

RunTab = Literal["curves", "log", "system", "pictures", "settings", "why", "compare"]
RUN_TABS: tuple[RunTab, ...] = ("curves", "log", "system", "pictures", "settings", "why", "compare")
SORT_KEYS = (None, "name", "state", "-started", "left", "-priority")
"""The orders that a key goes through; None: running tasks, then the queue in its order, then ended ones."""
_MAX_MARKS = 8
"""As many as curves have colours."""
_RUNNING_STATES = ("running", "starting", "stopping")


@dataclass
class ListEntry:
    """A line of the tasks pane."""

    id: str
    task: LabTask | None
    sweep: LabSweep | None
    is_member: bool = False
    """Whether it is below its sweep."""
    name: str = ""
    """As it is listed: that of a member without the name of its sweep, which is the same on each line."""


@dataclass
class ViewState:
    """The choices of a person, and the list that follows from them."""

    filter: str = ""
    sort: str | None = None
    expanded: set[str] = field(default_factory=set)
    """Sweeps whose tasks are listed one by one."""
    selected: str | None = None
    """The id of the selected task or sweep."""
    marks: list[str] = field(default_factory=list)
    """The ids of marked tasks, in the order in which they were marked: that of their colours."""
    watched: str | None = None
    """The analyzer whose output is shown."""
    tab: RunTab = "curves"
    metrics: list[str] = field(default_factory=list)
    """Metrics whose curves were chosen; empty: those that stand for the run."""
    is_logarithmic: bool = False
    rank: int = 0
    """The rank whose log is shown."""
    entries: list[ListEntry] = field(default_factory=list)
    filter_error: str = ""
    index: int = 0
    """The line of the selection."""

    # --- the list

    def refresh(self, lab: LabState) -> None:
        """Makes the list anew. The selection stays on its task; where that is gone, on its line."""
        try:
            found = lab.tasks(filter=self.filter, sort=self.sort, expanded=self.expanded)
            self.filter_error = ""
        except UsageError as error:  # while it is being typed, the list of before stays
            self.filter_error = str(error)
            if self.entries:
                return
            found = lab.tasks(expanded=self.expanded)
        self.entries = self._in_order(found)
        self._keep_selection()

    def _in_order(self, found: Sequence[LabTask | LabSweep]) -> list[ListEntry]:
        groups: list[list[ListEntry]] = []
        for one in found:
            sweep_tasks = getattr(one, "tasks", None)
            if sweep_tasks is not None:
                groups.append([ListEntry(one.id, None, one, name=one.sweep.name)])  # type: ignore
            elif groups and (head := groups[-1][0]).sweep is not None and one in head.sweep.tasks:
                name = one.row.name.removeprefix(f"{head.name}_") or one.row.name
                groups[-1].append(ListEntry(one.id, one, None, is_member=True, name=name))
            else:
                name = _package_name(one.row)  # type: ignore[union-attr]
                groups.append([ListEntry(one.id, one, None, name=name)])  # type: ignore[arg-type]
        if self.sort is None and "sort:" not in self.filter:
            groups.sort(key=lambda group: _usual_order(group[0]))
        return [entry for group in groups for entry in group]

    def _keep_selection(self) -> None:
        for number, entry in enumerate(self.entries):
            if entry.id == self.selected:
                self.index = number
                return
        self.index = max(0, min(self.index, len(self.entries) - 1))
        self.selected = self.entries[self.index].id if self.entries else None

    # --- choices

    @property
    def entry(self) -> ListEntry | None:
        """The selected line; None in an empty list."""
        return self.entries[self.index] if self.index < len(self.entries) else None

    @property
    def task(self) -> LabTask | None:
        """The selected task; of a sweep its first that runs, else its first."""
        entry = self.entry
        if entry is None or entry.sweep is None:
            return None if entry is None else entry.task
        tasks = entry.sweep.tasks
        return next((task for task in tasks if task.row.state in _RUNNING_STATES), tasks[0])

    def move(self, lines: int) -> None:
        """Moves the selection, within the list."""
        self.index = max(0, min(len(self.entries) - 1, self.index + lines))
        self.selected = self.entries[self.index].id if self.entries else None

    def select(self, id: str) -> bool:
        """Selects a task or a sweep; returns whether it is in the list."""
        for number, entry in enumerate(self.entries):
            if entry.id == id:
                self.index, self.selected = number, id
                return True
        return False

    def toggle_fold(self) -> bool:
        """Lists the tasks of the selected sweep, or of the one that the selected task is below, or folds
        them; returns whether there was one."""
        entry = self.entry
        if entry is None:
            return False
        sweep = entry.id if entry.sweep is not None else None
        if entry.is_member and entry.task is not None:
            sweep = entry.task.row.sweep
        if sweep is None:
            return False
        if sweep in self.expanded:
            self.expanded.discard(sweep)
            self.selected = sweep
        else:
            self.expanded.add(sweep)
        return True

    def toggle_mark(self) -> str:
        """Marks the selected task, or takes its mark; of a sweep those of its tasks. Returns a line about
        marks that there is no room for, else an empty text."""
        entry = self.entry
        if entry is None:
            return ""
        ids = [task.id for task in entry.sweep.tasks] if entry.sweep is not None else [entry.id]
        if all(one in self.marks for one in ids):
            self.marks = [one for one in self.marks if one not in ids]
            return ""
        new = [one for one in ids if one not in self.marks]
        room = _MAX_MARKS - len(self.marks)
        self.marks += new[:room]
        return f"at most {_MAX_MARKS} tasks are marked" if len(new) > room else ""

    def clear_marks(self) -> None:
        """Takes all marks."""
        self.marks = []

    def next_sort(self) -> str | None:
        """Goes on to the next order and returns it."""
        known = self.sort if self.sort in SORT_KEYS else None
        self.sort = SORT_KEYS[(SORT_KEYS.index(known) + 1) % len(SORT_KEYS)]
        return self.sort

    def target_names(self) -> list[str]:
        """Returns what a verb of a key is about: the selected task or sweep, as it is named in a command
        line."""
        entry = self.entry
        if entry is None:
            return []
        if entry.sweep is not None:
            return [entry.sweep.sweep.short]
        return [label(entry.task)] if entry.task is not None else []

    def marked_tasks(self, lab: LabState) -> list[LabTask]:
        """Returns the marked tasks that still exist."""
        found = [lab.task(id) for id in self.marks]
        return [task for task in found if task is not None]

    def shown_metrics(self, task: LabTask, most: int) -> list[str]:
        """Returns the metrics whose curves are shown: the chosen ones that the task has, else its main
        one and those that follow it."""
        names = task.metric_names()
        if chosen := [name for name in self.metrics if name in names]:
            return chosen[:most]
        main = task.main_metric()
        twins = [name for name in names if main is not None and _quantity(name) == _quantity(main)]
        others = [name for name in names if name not in twins]
        losses = [name for name in others if "loss" in name]
        return list(dict.fromkeys([*([main] if main else []), *twins, *losses, *others]))[:most]


def label(task: LabTask) -> str:
    """Returns the short name of a task in a command line."""
    return task.row.label


def is_analyzer(task: LabTask) -> bool:
    """Whether a task is an analyzer, in which scripts run."""
    return task.row.kind == TaskKind.ANALYZE


def _package_name(row: TaskRow) -> str:
    """Returns the name of a task; of one that reads a package the package's, as the label says the rest."""
    name, _, folder = row.name.rpartition("/")
    return name.rpartition("/")[0] if folder.isdigit() and "/" in name else row.name


def _quantity(metric: str) -> str:
    """Returns a metric without its split: ``loss`` of ``valid/loss``."""
    return metric.rpartition("/")[2]


def _usual_order(entry: ListEntry) -> tuple[int, float, float]:
    """Returns where an entry is listed: what runs, then the queue in its order, then what has ended, the
    latest first."""
    tasks = [entry.task] if entry.task is not None else list(entry.sweep.tasks if entry.sweep else ())
    states = {task.row.state for task in tasks}
    if states & set(_RUNNING_STATES):
        running = [task.row for task in tasks if task.row.state in _RUNNING_STATES]
        return 0, min(row.started or row.submitted for row in running), 0.0
    if "pending" in states:
        waiting = [task for task in tasks if task.row.state == "pending"]
        place = min((task.position for task in waiting if task.position is not None), default=10**9)
        return 1, float(place), min(task.row.submitted for task in waiting)
    return 2, -max((task.row.ended or 0.0) for task in tasks), 0.0
