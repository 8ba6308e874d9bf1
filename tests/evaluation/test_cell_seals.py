"""The seals of finished cells: `roost verify` judges their files, no evaluation takes a damaged one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.base.errors import RoostError
from roost.operations.evaluating.evaluate import evaluate as evaluate_in_session
from roost.operations.evaluating.evaluation_request import EvaluateRequest
from roost.operations.evaluating.named_evaluations import find_cells
from roost.operations.reading.verify import Finding, verify
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder
from roost.package.seals import seal
from tests.evaluation.digits import digits_package
from tests.evaluation.evaluating import evaluate, requested, run_session
from tests.messages import Messages

CELL = "default_inference/best/test%noisy"


@pytest.fixture(scope="module")
def trained_digits(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    package = digits_package(tmp_path_factory.mktemp("digits"))
    evaluate(package, "first", datasets=["clean", "noisy"])
    return package


@pytest.fixture
def digits(trained_digits: PackageFolder, tmp_path: Path) -> PackageFolder:
    """A package with a finished evaluation."""
    shutil.copytree(trained_digits.path, tmp_path / "package")
    return PackageFolder.open(tmp_path / "package")


def findings(package: PackageFolder) -> dict[str, Finding]:
    """The findings about the evaluation by their paths below it."""
    found = {one.path: one for one in verify(package.path) if one.what == "evaluation"}
    return {path.removeprefix("evaluations/first/"): one for path, one in found.items()}


def flip(path: Path) -> None:
    """Changes one byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_each_file_of_a_finished_cell_is_sealed(digits: PackageFolder) -> None:
    folder = digits.path / "evaluations" / "first"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    expected = {name for name in files if "/" in name} | {"cells.json", "report.md", "report.html"}
    found = findings(digits)
    assert found.keys() >= {name for name in expected if not name.startswith(("sessions/", "system/"))}
    assert any("/files/" in name for name in found)
    assert {one.verdict for one in found.values()} == {"good"}
    assert all(one.sha256 is not None for one in seal.read(folder / CELL / "seal.json").files.values())


@pytest.mark.parametrize(
    ("name", "damage", "verdict"),
    [
        (f"{CELL}/rows.parquet", flip, "damaged"),
        (f"{CELL}/summary.json", Path.unlink, "missing"),
        (f"{CELL}/cell.json", flip, "damaged"),
        (f"{CELL}/seal.json", Path.unlink, "missing"),
        ("cells.json", flip, "damaged"),
        ("report.html", flip, "damaged"),
        ("seal.json", flip, "damaged"),
    ],
)
def test_what_is_damaged_is_found(
    digits: PackageFolder, name: str, damage: Callable[[Path], None], verdict: str
) -> None:
    damage(digits.path / "evaluations" / "first" / name)
    assert findings(digits)[name].verdict == verdict


def test_a_cell_that_is_gone_is_missing(digits: PackageFolder) -> None:
    folder = digits.path / "evaluations" / "first"
    shutil.rmtree(folder / CELL)
    assert findings(digits)[CELL].verdict == "missing"


def test_a_cell_that_is_not_finished_is_unsealed(digits: PackageFolder) -> None:
    folder = digits.path / "evaluations" / "first"
    (folder / "seal.json").unlink()
    (folder / CELL / "seal.json").unlink()
    found = findings(digits)
    assert found[CELL].verdict == found["evaluations/first"].verdict == "unsealed"
    assert found["default_inference/best/test%clean/rows.parquet"].verdict == "good"


def test_a_damaged_cell_is_not_found_again(digits: PackageFolder) -> None:
    source = digits.path / "evaluations" / "first" / CELL
    whole = (source / "rows.parquet").read_bytes()
    flip(source / "rows.parquet")
    folder = requested(digits, "again", datasets=["clean", "noisy"])
    printed = run_session(digits, folder)
    assert f"{source} is evaluated again: rows.parquet has other bytes than were written" in printed
    found = evaluation_folder.read_grid(folder.path)
    assert found is not None and [one.found_in is None for one in found.cells] == [False, True]
    assert (folder.path / CELL / "rows.parquet").read_bytes() == whole
    assert seal.read(folder.path / CELL / "seal.json") == seal.read(source / "seal.json")


def test_a_copy_of_a_cell_has_a_seal_of_its_own(digits: PackageFolder) -> None:
    """Its cell.json has the name by which its own grid selected the checkpoint."""
    last = max(int(path.name[6:].split(".")[0]) for path in digits.checkpoints.iterdir())
    for name, checkpoints in (("last", "last"), ("id", str(last))):
        folder = evaluate(digits, name, datasets=["noisy"], checkpoints=checkpoints)
    (copy,) = evaluation_folder.EvaluationFolder(folder).cells()
    assert json.loads((copy.path / "cell.json").read_text())["checkpoint"] == str(last)
    assert all(one.verdict == "good" for one in verify(digits.path) if one.what == "evaluation")


def test_a_damaged_cell_of_the_same_evaluation_is_an_error_and_may_be_removed(
    digits: PackageFolder, messages: Messages
) -> None:
    folder = digits.path / "evaluations" / "first"
    before = {path: path.read_bytes() for path in (folder / CELL).rglob("*") if path.is_file()}
    flip(folder / CELL / "summary.json")
    asked = EvaluateRequest(package=digits.path, name="first", datasets=["clean", "noisy"])
    with pytest.raises(RoostError) as caught:
        evaluate_in_session(asked)
    messages.check(caught.value)
    session = requested(digits, "first", datasets=["clean", "noisy"])
    with pytest.raises(RoostError, match="not as they were written"):
        run_session(digits, session)
    shutil.rmtree(folder / CELL)
    (folder / "report.md").unlink()
    assert not evaluation_folder.EvaluationFolder(folder).is_finished
    run_session(digits, session)
    assert {path: path.read_bytes() for path in before} == before
    assert (folder / "report.md").is_file() and evaluation_folder.EvaluationFolder(folder).is_finished
    assert {one.verdict for one in findings(digits).values()} == {"good"}


@pytest.mark.parametrize("name", ["rows.parquet", "summary.json"])
def test_what_was_edited_by_hand_is_not_compared(
    digits: PackageFolder, name: str, messages: Messages
) -> None:
    cell = digits.path / "evaluations" / "first" / CELL
    assert find_cells(cell).cells
    (cell / name).write_bytes((cell / name).read_bytes() + b" ")
    for word in (cell, digits.path):
        with pytest.raises(RoostError) as caught:
            find_cells(word)
        messages.check(caught.value)


def test_a_cell_that_was_cut_before_its_seal_is_finished_by_the_next_session(
    digits: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_folder_seal(folder: Path, **rest: object) -> None:
        raise KeyboardInterrupt

    folder = requested(digits, "cut", datasets=["clean"], checkpoints="0")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("roost.package.seals.session_seal.write_folder_seal", write_folder_seal)
        run_session(digits, folder)
    (one,) = evaluation_folder.EvaluationFolder(folder.path).cells()
    assert one.state == "waiting" and (one.path / "summary.json").is_file()
    run_session(digits, folder)
    assert evaluation_folder.EvaluationFolder(folder.path).is_finished and (one.path / "seal.json").is_file()
