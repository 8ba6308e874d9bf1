from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter
from roost.serve.routes import run_records
from roost.serve.routes.run_records import FollowRecords, RowStream
from roost.serve.routes.served_packages import run_id
from tests.operations.packages import ROWS, package, record_rows, session
from tests.serve.servers import RUN, Server


@pytest.fixture(scope="module")
def made(server: Server) -> PackageFolder:
    """A run of two sessions, the second of which went back to step 20."""
    made = package(server.root, "recorded", checkpoints=False)
    record_rows(made, session(made, "succeeded"), 20, [{"step": 30, "epoch": 3, "valid/loss": float("nan")}])
    return made


def test_curves(server: Server, made: PackageFolder) -> None:
    path = f"/runs/{run_id(made.path)}/records"
    names = server.get(path)
    assert names["curves"] == [] and {"train/loss", "valid/loss", "lr"} <= set(names["names"])
    found = server.get(f"{path}?name=valid/loss&name=train/loss&width=2")
    valid, train = found["curves"]
    assert (found["from_step"], found["to_step"]) == (10, 30)
    assert valid["first_steps"] == [10] and valid["max"] == [1.5] and valid["min"] == [0.5]
    assert valid["gaps"] == [{"column": 1, "kind": "nan", "points": 1, "first_step": 30}]
    assert train["last_steps"] == [20] and train["points"] == 2
    part = server.get(f"{path}?name=train/loss&from_step=15&to_step=40")
    assert part["curves"][0]["columns"] == [192] and part["curves"][0]["first"] == [1.0]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("name=train/los", 404, "name"),
        ("from_step=3&to_step=2", 400, "to_step"),
        ("width=0", 422, "width"),
        ("width=10001", 422, "width"),
        ("from_step=x", 422, "from_step"),
        ("from_step=-1", 422, "from_step"),
        ("to_step=-1", 422, "to_step"),
        (f"to_step={2**63}", 422, "to_step"),
        ("name=", 422, "name[0]"),
    ],
)
def test_mistakes(server: Server, made: PackageFolder, query: str, status: int, field: str) -> None:
    found = server.ask("GET", f"/runs/{run_id(made.path)}/records?{query}")
    assert (found.status, found.json["error"]["field"]) == (status, field)
    assert server.ask("GET", f"/runs/{RUN}/records").code == "not_found"


def test_a_stream_continues_from_the_cursor_of_the_curves(server: Server, made: PackageFolder) -> None:
    path = f"/runs/{run_id(made.path)}/records"
    everything = list(server.follow(f"{path}/follow"))
    rows = [row for _, kind, data in everything if kind == "rows" for row in data["rows"]]
    assert [row.get("start_step", row.get("step")) for row in rows] == [0, 10, 20, 30, 20, 30]
    assert rows[-1]["valid/loss"] is None and rows[-1]["nonfinite"] == {"valid/loss": "nan"}
    assert everything[-1][1] == "end" and everything[0][0] != everything[1][0]
    assert list(server.follow(f"{path}/follow?cursor={everything[0][0]}")) == everything[1:]
    assert list(server.follow(f"{path}/follow?cursor={server.get(path)['cursor']}")) == everything[-1:]
    assert server.ask("GET", f"{path}/follow?cursor=1").json["error"]["field"] == "cursor"


def all_new(rows: RowStream) -> list[tuple[str, int, Any]]:
    found = []
    while new := rows.read_new():
        found += [(one.cursor, one.data.session, row) for one in new for row in one.data.rows]
    return found


def test_rows_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path / "runs", checkpoints=False)
    rows = RowStream(made.path, FollowRecords(run=RUN))
    assert [row.get("step") for _, _, row in all_new(rows)] == [None, 10, 20, 30]
    writer = RecordsWriter(made.path / "records" / "2.jsonl", session=2, start_step=20)
    writer.row(21, 0, {"a": 1.0})
    assert [(number, row.get("step")) for _, number, row in all_new(rows)] == [(2, None), (2, 21)]
    path = made.path / "records" / "2.jsonl"
    line = json.dumps({"step": 22, "a": 3.0}).encode()
    for piece, expected in ((line[:9], []), (line[9:], []), (b"\n", [22]), (line + b"\nodd\n", [])):
        with path.open("ab") as file:
            file.write(piece)
        assert [row["step"] for _, _, row in all_new(rows)] == expected
    monkeypatch.setattr(run_records, "_PIECE_BYTES", 10)
    again = all_new(RowStream(made.path, FollowRecords(run=RUN)))
    assert [row.get("step") for _, _, row in again] == [None, *(one["step"] for one in ROWS), None, 21, 22]
    ends = {cursor: at for at, (cursor, _, _) in enumerate(again)}  # several rows may come at once
    for cursor, at in ends.items():
        monkeypatch.setattr(run_records, "_PIECE_BYTES", 1000)
        rest = all_new(RowStream(made.path, FollowRecords(run=RUN, cursor=cursor)))
        assert [one[1:] for one in rest] == [one[1:] for one in again[at + 1 :]]
    monkeypatch.setattr(run_records, "_MAX_LINE_BYTES", 40)
    with path.open("ab") as file:
        file.write(b"x" * 100 + b"\n" + json.dumps({"step": 23}).encode() + b"\n")
    writer.row(24, 0, {"a": 1.0})
    assert [row["step"] for _, _, row in all_new(rows)][-1] == 24
    writer.close()


def test_runs_that_match_a_query(server: Server, made: PackageFolder) -> None:
    for number in range(3):
        package(server.root, f"queried-{number}", values={"rate": number}, checkpoints=False)

    def listed(query: str) -> tuple[int, list[str]]:
        found = server.get(f"/runs?query={query}")
        return found["total"], [run["summary"]["name"] for run in found["runs"]]

    assert listed("rate%3E0%20sort:rate") == (2, ["queried-1", "queried-2"])
    assert listed("rate%3E=0%20sort:-rate&offset=1&limit=1") == (3, ["queried-1"])
    wrong = server.ask("GET", "/runs?query=rat%3E0")
    assert (wrong.status, wrong.code, wrong.json["error"]["field"]) == (400, "usage", "query")
    assert "'rate'" in wrong.json["error"]["fix"]


def test_records_elsewhere_are_not_read(server: Server, tmp_path: Path) -> None:
    path, id = server.package("linked")
    (path / "args.json").write_text("{}")
    (tmp_path / "1.jsonl").write_text('{"step": 1, "secret": 7}\n')
    (path / "records").symlink_to(tmp_path)
    for way in ("records", "records?name=secret", "records/follow"):
        assert server.ask("GET", f"/runs/{id}/{way}").code == "no_rights"
