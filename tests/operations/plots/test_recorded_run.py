"""The records of one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.operations.curves import history_cache
from roost.operations.plots.recorded_run import RecordedRun
from tests.operations.packages import ROWS, package, record_rows, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(history_cache, "_REWRITE_BYTES", 0)


def test_what_it_knows_of_the_records(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "succeeded")
    record_rows(made, 2, 20, [{"step": 40, "epoch": 4, "train/loss": 0.1}])
    with (made.path / "records" / "2.jsonl").open("a") as file:
        file.write('{"step": 41, "tr\n')
    run = RecordedRun(made)
    assert (run.starts, run.torn, run.forked_at) == ([(1, 0), (2, 20)], 1, None)
    steps, values = run.series("train/loss")
    assert (steps.tolist(), values.tolist()) == ([10, 20, 40], [2.0, 1.0, 0.1])


def test_a_cache_that_is_damaged_meanwhile(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    RecordedRun(made)  # writes the cache
    run = RecordedRun(made)
    (cached,) = (tmp_path / "cache" / "roost" / "records").iterdir()
    cached.write_bytes(cached.read_bytes()[:-64] + bytes(64))
    found = {name: run.series(name)[1].tolist() for name in ("train/loss", "valid/loss", "lr")}
    assert found == {name: [row[name] for row in ROWS] for name in found}
