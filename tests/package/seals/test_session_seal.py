"""Which files each session seals, and which again."""

from __future__ import annotations

import os
from pathlib import Path

from roost.operations.reading.verify import verify
from roost.package.package import PackageFolder
from roost.package.seals import session_seal
from roost.package.seals.seal import BrokenSeal, Seal
from tests.operations.packages import package, record_rows, session


def files_of(made: PackageFolder, number: int) -> set[str]:
    found = session_seal.read_all(made.path)[number]
    assert isinstance(found, Seal)
    return set(found.files)


def seal_session(made: PackageFolder, number: int) -> None:
    session_seal.write(session_seal.seal_path(made.path, number))


def next_session(made: PackageFolder, state: str = "succeeded") -> int:
    """Adds a session after some time, as the clock of a file system has its ticks."""
    number = session(made, state)
    record_rows(made, number, 30, [{"step": 30 + number, "epoch": 4, "train/loss": 0.1}])
    return number


def age(made: PackageFolder) -> None:
    """Makes all that exists older by an hour."""
    for path in [made.path, *made.path.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 3600 * 10**9))


def test_the_first_session_seals_what_its_package_was_made_of(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    seal_session(made, 1)
    assert files_of(made, 1) == {
        "_package.json",
        "args.json",
        "manifest.json",
        "progress",
        "provenance.json",
        "records/1.jsonl",
        "request.json",
        "sessions/1.json",
        "sessions/1.request.json",
    }


def test_a_later_session_seals_its_own_files_and_what_it_rewrote(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "media" / "10").mkdir(parents=True)
    (made.path / "media" / "10" / "kept.png").write_bytes(b"kept")
    (made.path / "media" / "10" / "again.png").write_bytes(b"first")
    seal_session(made, 1)
    age(made)
    (made.path / "records" / "1.jsonl").write_text("damaged between the two sessions")
    age(made)
    number = next_session(made)
    (made.path / "media" / "10" / "again.png").write_bytes(b"second")
    (made.path / "records" / "1.jsonl").touch()
    seal_session(made, number)
    assert files_of(made, number) == {
        "media/10/again.png",
        "records/2.jsonl",
        "sessions/1.seal.json",
        "sessions/2.json",
        "sessions/2.request.json",
    }


def test_what_changed_between_two_sessions_is_not_sealed_as_good(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "_output.txt").write_text("output")
    seal_session(made, 1)
    (made.path / "_output.txt").write_text("by hand")
    age(made)
    number = next_session(made)
    seal_session(made, number)
    assert "_output.txt" not in files_of(made, number)


def test_the_files_of_a_session_that_was_killed_are_sealed_by_the_next(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    seal_session(made, 1)
    age(made)
    next_session(made, "crashed")
    (made.path / "progress").write_bytes(b"by the session that was killed")
    number = next_session(made)
    seal_session(made, number)
    assert {"records/2.jsonl", "records/3.jsonl", "sessions/2.json", "progress"} <= files_of(made, number)


def test_a_file_that_no_session_has_written_is_not_sealed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    seal_session(made, 1)
    (made.path / "media" / "10").mkdir(parents=True)
    (made.path / "media" / "10" / "strange.png").write_bytes(b"of a stranger")
    (made.path / "sessions" / "1.strange.txt").write_bytes(b"of a stranger")
    age(made)
    seal_session(made, next_session(made))
    number = next_session(made)
    (made.path / "media" / "10" / "own.png").write_bytes(b"of session 3")
    seal_session(made, number)
    assert files_of(made, 2) >= {"records/2.jsonl", "sessions/1.seal.json"}
    assert "media/10/own.png" in files_of(made, 3)
    strange = {"media/10/strange.png", "sessions/1.strange.txt"}
    assert not strange & (files_of(made, 2) | files_of(made, 3))
    found = {one.path: one for one in verify(made.path)}
    assert {name: found[name].verdict for name in strange} == dict.fromkeys(strange, "unsealed")


def test_a_damaged_seal_is_not_replaced_by_the_next_one(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    seal_session(made, 1)
    age(made)
    session_seal.seal_path(made.path, 1).write_text("nonsense")
    seal_session(made, next_session(made))
    covered = {"args.json", "request.json", "records/1.jsonl", "sessions/1.json", "sessions/1.seal.json"}
    assert not covered & files_of(made, 2)


def test_a_session_that_has_not_ended_is_not_sealed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    seal_session(made, 1)
    assert session_seal.read_all(made.path) == {}


def test_the_files_of_other_machines_and_later_sessions_are_not_covered(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    for name in ("1.node-1.json", "task-abc.json", "2.request.json", ".1.json.tmp-0123456789ab"):
        (made.path / "sessions" / name).write_text("{}")
    seal_session(made, 1)
    assert {name for name in files_of(made, 1) if name.startswith("sessions/")} == {
        "sessions/1.json",
        "sessions/1.request.json",
    }


def test_a_seal_of_another_session_is_broken(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    seal_session(made, 1)
    session_seal.seal_path(made.path, 1).rename(session_seal.seal_path(made.path, 2))
    assert isinstance(session_seal.read_all(made.path)[2], BrokenSeal)


def test_the_seal_of_a_folder_covers_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.npy").write_bytes(b"1")
    (tmp_path / "meta.json").write_text("{}")
    (tmp_path / "link").symlink_to("meta.json")
    session_seal.write(tmp_path / session_seal.FOLDER_SEAL)
    from roost.package.seals import seal

    assert set(seal.read(tmp_path / session_seal.FOLDER_SEAL).files) == {"a/b.npy", "meta.json"}


def test_the_metrics_of_the_system_are_sealed_and_nothing_else_in_a_folder_of_that_name(
    tmp_path: Path,
) -> None:
    """A project may have a folder of this name, with files of any kind."""
    made = package(tmp_path / "runs")
    folder = made.path / "system"
    (folder / "deep").mkdir(parents=True)
    for name in ("1.jsonl", "1.node-1.jsonl", "driver.py", "1.json", "deep/1.jsonl", "2.jsonl"):
        (folder / name).write_text("{}\n")
    seal_session(made, 1)
    assert {name for name in files_of(made, 1) if name.startswith("system/")} == {"system/1.jsonl"}
    (folder / "1.jsonl").write_text("{ }\n")
    (found,) = [one for one in verify(made.path) if one.path == "system/1.jsonl"]
    assert (found.what, found.verdict) == ("system", "damaged")
    next_session(made)
    seal_session(made, 2)
    assert "system/2.jsonl" in files_of(made, 2) and "system/1.jsonl" not in files_of(made, 2)
