"""The metrics of the system from Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import roost
from roost.base.errors import Refused
from roost.package.results.system_metrics import SystemRow
from roost.supervisor.monitoring.system_file import SystemFile


@pytest.fixture
def run(tmp_path: Path) -> roost.Package:
    """Two sessions, the second one without a card."""
    made = roost.Package.new({}, root=tmp_path, name="one")
    for number, columns in ((1, ["gpu0/power", "host/cpu"]), (2, ["host/cpu"])):
        file = SystemFile(made.path / "system" / f"{number}.jsonl", columns)
        file.add_facts({"cards": [{"id": "GPU-1"}][: len(columns) - 1], "host": {"name": f"vm{number}"}})
        for second in range(3):
            values = [float(number * 10 + second)] * len(columns)
            file.add(SystemRow(number * 1000.0 + second, 1.0, values, values))
        file.finish()
    return made


def test_the_columns_of_all_sessions(run: roost.Package) -> None:
    table = roost.open_package(run.path).system()
    assert len(table) == 6
    assert table["time"] == [1000, 1001, 1002, 2000, 2001, 2002] and table["session"] == [1, 1, 1, 2, 2, 2]
    assert table["gpu0/power"] == [10, 11, 12, None, None, None] == table.peaks["gpu0/power"]
    assert table["host/cpu"] == [10, 11, 12, 20, 21, 22] and table["seconds"] == [1] * 6
    assert table.cards == {1: [{"id": "GPU-1"}], 2: []} and table.hosts[2] == {"name": "vm2"}


def test_its_text_tells_means_and_peaks(run: roost.Package) -> None:
    table = run.system()
    lines = [
        "6 rows of 2 sessions, 6.0s:",
        "name        mean  peak",
        "gpu0/power  11    12",
        "host/cpu    16    22",
    ]
    assert repr(table).splitlines() == lines
    assert "<td>gpu0/power</td><td>11</td><td>12</td>" in table._repr_html_()


def test_a_package_without_any(tmp_path: Path) -> None:
    table = roost.Package.new({}, root=tmp_path).system()
    assert len(table) == 0 and [*table.columns] == ["time", "seconds", "session"] and table.cards == {}
    assert repr(table) == "0 rows of 0 sessions, 0.0s"


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_a_table_needs_its_library(run: roost.Package, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Refused):
        run.system().to_pandas() if library == "pandas" else run.system().to_arrow()
