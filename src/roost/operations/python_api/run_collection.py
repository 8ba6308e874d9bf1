"""`roost.runs`: many runs, selected and sorted by a query, and their settings and metrics side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from roost.base.errors import NotFound
from roost.base.text.suggestions import did_you_mean
from roost.operations.comparing.comparison import PackageComparison
from roost.operations.listing.list_packages import find_packages
from roost.operations.listing.package_row import FoundPackage, PackageSummary
from roost.operations.listing.run_listing import join_values, varying_settings
from roost.operations.listing.search_columns import FIELDS, SearchColumns, ValueGetter
from roost.operations.python_api import tables
from roost.operations.python_api.package_api import Package

_MAX_SHOWN_RUNS = 20
_MAX_SHOWN_SETTINGS = 6


def runs(folders: Path | str | Iterable[Path | str] | None = None, query: str = "") -> Runs:
    """Returns the runs of one or several folders, as `roost ls` lists them.

    ```
    best = roost.runs("runs", "state:succeeded sort:-valid/accuracy")[0]
    steps, values = best.metrics("valid/*")["valid/accuracy"]
    frame = roost.runs(["runs", "/data/old/runs"], "lr<1e-3").to_pandas()
    ```

    Args:
        folders: A folder with packages, a package, or several of both. In a folder without packages its
            ``runs`` is read. None: the current folder.
        query: Selects and sorts the runs: `roost.operations.listing.query`.

    Raises:
        NotFound: There is no such folder.
        UsageError: The query is not valid, or no run has one of its keys.
    """
    given = [folders] if folders is None or isinstance(folders, str | Path) else list(folders)
    return Runs(*find_packages(given, query))


class Runs(Sequence[Package]):
    """Runs in the order of their query. An element is the `roost.Package` that `roost.open_package` returns.

    ```
    runs[0], runs[:10], runs["2026-11-20_07-33-13_481"]
    ```
    """

    def __init__(self, found: Sequence[FoundPackage], columns: SearchColumns) -> None:
        self._found, self._columns = found, columns

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, key: int | str) -> Package: ...

    @overload
    def __getitem__(self, key: slice) -> Runs: ...

    def __getitem__(self, key: int | str | slice) -> Package | Runs:
        """Returns a run by its position or its name, or several by a slice.

        Raises:
            NotFound: There is no run of this name.
            IndexError: There is no run at this position.
        """
        if isinstance(key, slice):
            return Runs(self._found[key], self._columns)
        if isinstance(key, str):
            for one in self._found:
                if one.name == key:
                    return Package(one.folder / one.name)
            fix = did_you_mean(key, self.names) + "`.names` are those that the query selected"
            raise NotFound("no run has this name", received=key, fix=fix)
        one = self._found[key]
        return Package(one.folder / one.name)

    @property
    def names(self) -> list[str]:
        """The names of the runs."""
        return [one.name for one in self._found]

    @property
    def summaries(self) -> list[PackageSummary]:
        """The summary of each run, as `roost ls` shows it."""
        return [one.entry.summary for one in self._found]

    @cached_property
    def settings(self) -> dict[str, list[Any]]:
        """The settings of all runs by dotted name, such as ``optimizers.main.lr``: a value per run; None
        where a run does not have the setting, a list where it has several values."""
        names = self._columns.settings
        return self._filled({name: self._columns.setting(name) for name in names})

    @cached_property
    def metrics(self) -> dict[str, list[Any]]:
        """The newest value of each metric by its name: a value per run, or None."""
        names = self._columns.metrics
        return self._filled({name: self._columns.metric(name) for name in names})

    def _filled(self, getters: Mapping[str, ValueGetter]) -> dict[str, list[Any]]:
        """Returns the columns in which at least one of the runs has a value."""
        columns = {name: [join_values(get(one)) for one in self._found] for name, get in getters.items()}
        return {name: values for name, values in columns.items() if values.count(None) < len(values)}

    @cached_property
    def varying(self) -> dict[str, list[Any]]:
        """The settings in which the runs differ: those first that most of them have."""
        return varying_settings(self._columns, self._found)

    def columns(self) -> dict[str, list[Any]]:
        """Returns the fields of the summaries, the folder, the settings and the newest metrics: a value per
        run and name. A setting with the name of a field or metric is called ``settings.<name>``."""
        found: dict[str, list[Any]] = {
            name: [getattr(one, name) for one in self.summaries] for name in FIELDS
        }
        found["folder"] = [str(one.folder) for one in self._found]
        found |= self.metrics
        taken = frozenset(found)
        found |= {
            f"settings.{name}" if name in taken else name: values for name, values in self.settings.items()
        }
        return found

    def compare(
        self, *, metrics: Sequence[str] = (), step: int | None = None, diff: Sequence[str] | None = None
    ) -> PackageComparison:
        """Returns what differs between the runs in settings, metrics, code and environment. A single fork is
        compared with its parent.

        Args:
            metrics: Compare only these metrics, by name or pattern.
            step: The step of the common values; None: the last one that all runs have reached.
            diff: Of two runs, the files whose lines are compared, by path or pattern; empty: all; None: none.

        Raises:
            UsageError: There is one run only, and it is not a fork.
            NotFound: There is no run; or a metric or file does not exist.
        """
        from roost.operations.comparing.compare import compare  # NumPy

        paths = [one.folder / one.name for one in self._found]
        return compare(paths, metrics=metrics, step=step, diff=diff)

    def to_pandas(self) -> Any:
        """Returns `columns` as a ``pandas.DataFrame`` with a line per run, indexed by name.

        Raises:
            Refused: pandas is not installed.
        """
        return tables.to_pandas(self.columns(), index="name")

    def to_arrow(self) -> Any:
        """Returns `columns` as a ``pyarrow.Table`` with a line per run.

        Raises:
            Refused: pyarrow is not installed.
        """
        return tables.to_arrow(self.columns())

    def __repr__(self) -> str:
        table = tables.align(*self._table())
        return "\n".join([f"{self._title()}:", *table, *self._remarks()]) if self else self._title()

    def _repr_html_(self) -> str:
        """Returns the table for notebooks."""
        return tables.to_html(self._title(), *self._table(), self._remarks())

    def _title(self) -> str:
        return "1 run" if len(self) == 1 else f"{len(self)} runs"

    def _remarks(self) -> list[str]:
        hidden = len(self) - _MAX_SHOWN_RUNS
        more = len(self.varying) - _MAX_SHOWN_SETTINGS
        lines = [f"and {hidden} more runs"] if hidden > 0 else []
        return lines + ([f"and {more} more settings differ: .varying has them"] if more > 0 else [])

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the header and the cells of the first runs, with the settings that most runs have and in
        which they differ."""
        varying = self.varying
        names = list(varying)[:_MAX_SHOWN_SETTINGS]
        lines = []
        for at, one in enumerate(self.summaries[:_MAX_SHOWN_RUNS]):
            own = [varying[name][at] for name in names]
            cells = [one.name, one.state, one.step, *own, one.metric, one.last, one.best]
            lines.append([tables.format_cell(value) for value in cells])
        return ["name", "state", "step", *map(tables.format_cell, names), "metric", "last", "best"], lines
