"""Whether the JSON of a package has the shape that roost writes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.base.errors import NotFound, RoostError
from roost.cli.package_view import format_package
from roost.operations.curves.export_records import export_records
from roost.operations.lifecycle.continue_ import ContinueRequest, next_session
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.listing.list_packages import list_packages
from roost.operations.models.analyze import AnalyzeRequest, analyze
from roost.operations.reading import package_schema
from roost.operations.reading.logs import logs
from roost.operations.reading.package_schema import DamagedPackage
from roost.operations.reading.show import show
from roost.operations.reading.verify import verify
from roost.package.package import PackageFolder
from roost.package.seals import session_seal
from tests.lab import queued
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import package, record_rows, session


def damages(made: PackageFolder) -> dict[str, str]:
    return {damage.name: damage.cause for damage in package_schema.find_damage(made)}


def test_what_roost_writes_is_intact(finished: PackageFolder) -> None:
    assert damages(finished) == {}
    assert package_schema.open_checked(finished.path).path == finished.path
    assert [one.number for one in package_schema.sessions(finished.path)] == [1]


@pytest.mark.parametrize("state", ["new", "running", "failed"])
def test_in_every_state(tmp_path: Path, state: str) -> None:
    assert damages(package(tmp_path / "runs", state=state)) == {}


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("request.json", "git", "main"),
        ("provenance.json", "[...]", 3),
        ("manifest.json", "files", [3]),
        ("manifest.json", "links", []),
        ("_package.json", "ckpt_fast", [-1]),
        ("sessions/1.json", "pid", "12"),
        ("sessions/1.json", "started", float("nan")),
        ("sessions/1.json", "seconds", 1e300),
        ("sessions/1.request.json", "overrides", "a=b"),
        ("sessions/1.request.json", "checkpoint", "newest"),
    ],
)
def test_the_file_and_the_key_are_named(tmp_path: Path, name: str, place: str, value: object) -> None:
    made = package(tmp_path / "runs")
    body = json.loads((made.path / name).read_text())
    (made.path / name).write_text(json.dumps({**body, place: value}))
    (found,) = damages(made).items()
    assert found[0] == name and found[1].rstrip("`").removesuffix("[0]").endswith(place)
    with pytest.raises(DamagedPackage, match=name):
        package_schema.open_checked(made.path)


def test_a_file_that_is_missing(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    (made.path / "manifest.json").unlink()
    (made.path / "_package.json").unlink()  # the worker writes it later
    assert list(damages(made)) == ["manifest.json"]
    messages.check(damages(made)["manifest.json"])


def test_a_last_record_that_was_torn_counts_as_none(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    session(made, "running")
    record = made.path / "sessions" / "2.json"
    record.write_bytes(record.read_bytes()[:40])
    assert damages(made) == {}
    assert package_schema.sessions(made.path)[1].record is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("request.json", "{"),
        ("request.json", '{"script": "look.py", "host": "a", "boot_id": "b", "pid": 1}'),
        ("session.json", '{"state": "running"}'),
        ("session.json", '{"state": "failed", "seconds": "long"}'),
    ],
)
def test_an_analysis_that_was_edited(file: str, text: str, tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    place = analysis_folder.create(made.path / analysis_folder.NAME)
    analysis_folder.write_request(place, {"script": {"path": "look.py"}})
    assert [one.state for one in package_schema.analyses(made.path)] == ["starting"]
    (place / file).write_text(text)
    with pytest.raises(DamagedPackage, match=f"analysis/1/{file}"):
        package_schema.analyses(made.path)


class Started(Exception):
    """In place of a process."""


def _read_in_every_way(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The commands that read a package, as their operations."""
    yield "show", lambda: [*format_package(show(path))]
    yield "ls", lambda: list_packages(path.parent)
    yield "ls PACKAGE", lambda: list_packages(path)
    yield "logs", lambda: [*logs(path)]
    table = path.parent.parent / "x.csv"
    yield "export", lambda: export_records(path, kind="csv", output=table, overwrite=True)
    further = ContinueRequest(package=path, overrides=["max_epochs=99"])
    yield "continue", lambda: next_session(package_schema.open_checked(path, to_continue=True), further)
    yield "fork", lambda: fork(ForkRequest(package=path, overrides=["max_epochs=99"]))
    yield "analyze", lambda: analyze(AnalyzeRequest(package=path, script="accuracy"))


def _unharmed(root: Path) -> Path:
    made = package(root)
    made.output.write_text("the output\n")
    strange = ("media/10/a.png", "profile/1/a.json", "records/2.jsonl.strange")
    for folder, file in (name.rsplit("/", 1) for name in strange):
        (made.path / folder).mkdir(parents=True, exist_ok=True)
        (made.path / folder / file).write_bytes(b"{}")
    session_seal.write(session_seal.seal_path(made.path, 1))
    for folder in ("analysis", "predictions", "blackbox", "exports"):
        (made.path / folder).mkdir()
    return made.path


@pytest.mark.parametrize("instead", ["nothing", "a file", "a folder", "a FIFO"])
def test_each_part_that_is_gone_or_replaced_gives_one_clear_error(
    tmp_path: Path, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_: object, **__: object) -> None:
        raise Started

    monkeypatch.setattr("roost.operations.lifecycle.fork.start_first_session", begin)
    monkeypatch.setattr("roost.operations.models.analyze._start", begin)
    whole = _unharmed(tmp_path / "whole")
    parts = sorted(path.relative_to(whole) for path in [*whole.iterdir(), *whole.glob("*/*")])
    for number, part in enumerate(parts):
        path = tmp_path / f"{number}" / "one"
        shutil.copytree(whole, path, symlinks=True)
        replace_part(path / part, instead)
        for name, read in _read_in_every_way(path):
            try:
                read()
            except Started:
                continue
            except RoostError as error:
                assert error.fix or error.where, f"{name}: {part}: {error}"
            except OSError as error:
                pytest.fail(f"{name} with {instead} for {part}: {error!r}")
        if part.name == "request.json" and instead != "a file":  # without it the folder is no package
            with pytest.raises(NotFound):
                [*verify(path)]
            continue
        found = [*verify(path)]
        is_removed_seal = part.name == "1.seal.json" and instead == "nothing"  # then its files are unsealed
        if part.name not in _UNJUDGED and not is_removed_seal:
            assert any(one.is_bad and one.path.startswith(str(part)) for one in found), part


_UNJUDGED = ("lock", "analysis", "predictions", "blackbox", "exports", "2.jsonl.strange", "state_0.ckpt")


def replace_part(path: Path, instead: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    if instead == "a file":
        path.write_bytes(b"x")
    elif instead == "a folder":
        path.mkdir()
    elif instead == "a FIFO":
        os.mkfifo(path)


def test_overrides_that_do_not_fit_to_the_settings(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert package_schema.settings(made)["max_epochs"] == 3
    made.new_session({"overrides": ["max_epochs"]})
    with pytest.raises(DamagedPackage, match=r"args\.json"):
        package_schema.settings(made)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        package_schema.open_checked(tmp_path)


def test_texts_that_are_no_utf8_are_shown_by_number() -> None:
    found = package_schema.printable({"a\udcff": ["b\udcff", 3, None, "ü"]})
    assert found == {"a\\udcff": ["b\\udcff", 3, None, "ü"]}


def test_a_package_is_opened_by_its_task(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", "one")
    lab = Lab(tmp_path)
    with lab.here():
        with lab.store() as store:
            store.submit([task := queued.task(name="called", package=str(made.path))])
        for text in (task.id, "called", made.path):
            assert package_schema.open_checked(text).path == made.path
            assert show(text).path == str(made.path)
        with pytest.raises(NotFound) as refused:
            package_schema.open_checked("nothing")
        assert "'nothing'" in str(refused.value)
        messages.check(refused.value)
        with pytest.raises(NotFound) as refused:
            package_schema.open_checked(tmp_path)
        assert str(tmp_path) in str(refused.value)
        messages.check(refused.value)


def test_rows_that_are_evidently_missing(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert package_schema.records_damage(made) is package_schema.records_damage(made, 1) is None
    record_rows(made, session(made, "succeeded"), 30, [{"step": 40, "epoch": 4, "lr": 0.1}])
    assert package_schema.records_damage(made, 2) is None
    (made.path / "records" / "1.jsonl").unlink()
    for torn in (0, 3):
        damage = package_schema.records_damage(made, torn)
        assert damage is not None and "step 30" in damage and "roost verify" in damage
        messages.check(damage)
