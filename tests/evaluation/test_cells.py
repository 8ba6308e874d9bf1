"""Evaluations in this process: what a cell holds, and that it depends neither on ranks nor on cuts."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import roost
from roost.base import durable
from roost.base.errors import (
    CheckpointError,
    ConfigError,
    ContractError,
    Damaged,
    NotFound,
    Refused,
    RoostError,
    UsageError,
)
from roost.evaluation import case_inputs, cell_copies, variant_arguments
from roost.evaluation import cell as cells
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.file_writer import FileWriter
from roost.evaluation.sample_values import split_values
from roost.package import live_progress, sessions
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder, evaluation_rows
from roost.package.session_folder import SessionFolder
from roost.project.package_context import package_code
from roost.worker.results import evaluate_task, weight_mean
from tests.evaluation.digits import DATASET, RUNNER, digits_package
from tests.evaluation.evaluating import VARIANTS, evaluate, requested, run_session
from tests.messages import Messages
from tests.project.trained import trained


@pytest.fixture(scope="module")
def trained_digits(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    return digits_package(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def digits(trained_digits: PackageFolder) -> PackageFolder:
    """A trained package without evaluations, whose finished cells would be found again."""
    shutil.rmtree(trained_digits.path / evaluation_folder.NAME, ignore_errors=True)
    return trained_digits


def changed(package: PackageFolder, tmp_path: Path, **code: str) -> PackageFolder:
    """A copy of the package with other code."""
    copy = tmp_path / "copy"
    shutil.copytree(package.path, copy, ignore=shutil.ignore_patterns("evaluations"))
    if "runner" in code:
        (copy / "Model" / "Runner.py").write_text(code["runner"])
    if "dataset" in code:
        (copy / "Dataset.py").write_text(code["dataset"])
    return PackageFolder.open(copy)


def cell_files(folder: Path) -> dict[str, str]:
    """The digest of each file of the cells of an evaluation."""
    found = evaluation_folder.read_grid(folder)
    assert found is not None and found.is_finished
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for one in found.cells
        for path in sorted((folder / one.folder).rglob("*"))
        if path.is_file()
    }


def test_a_cell_has_a_row_for_each_sample(digits: PackageFolder) -> None:
    folder = evaluate(digits, "rows", datasets=["clean"])
    (one,) = evaluation_folder.EvaluationFolder(folder).cells()
    assert one.state == "finished" and one.dataset == "test/clean"
    assert one.path == folder / "default_inference" / "best" / "test%clean"
    rows = evaluation_rows.read_rows(one.path)
    assert rows.ids == [f"clean/{number:04d}" for number in range(597)]
    assert set(rows.metrics) == {"loss", "correct"} and set(rows.groups) == {"writer", "digit"}
    first = rows.row(0)
    assert first["group/writer"] == "(none)" and first["text"].startswith("digit ")
    assert len(first["scores"]) == 10 and (one.path / first["picture"]).read_bytes()[1:4] == b"PNG"
    summary = one.summary
    assert summary is not None and summary["evaluated"] == 597
    assert summary["metrics"]["error_rate"]["mean"] == pytest.approx(
        1 - summary["metrics"]["correct"]["mean"], abs=1e-12
    )
    assert summary["groups"]["writer"]["unlabeled"] == 55
    assert [len(case["cases"]) for case in summary["worst"]] == [7, 3]
    inputs = case_inputs.read_inputs(one.path)
    assert inputs[summary["worst"][0]["cases"][0]["id"]]["input"].startswith("float32")
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("ranks", [2, 3, 40])
def test_the_ranks_do_not_show(digits: PackageFolder, tmp_path: Path, ranks: int) -> None:
    """The last number is more than there are batches: most ranks have none."""
    expected = evaluate(digits, "alone", datasets=["noisy"])
    files = cell_files(expected)
    hidden = expected.rename(tmp_path / "alone")  # else its finished cells would be copied
    try:
        assert cell_files(evaluate(digits, f"of-{ranks}", ranks=ranks, datasets=["noisy"])) == files
    finally:
        hidden.rename(expected)


def test_a_cut_session_goes_on_with_other_ranks(
    digits: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(digits, "uncut", datasets=["noisy"])
    files = cell_files(whole)
    whole.rename(tmp_path / "uncut")
    real = evaluation_rows.write_part
    written: list[Any] = []

    def write_part(*args: Any, **rest: Any) -> Path:
        if len(written) == 2:
            raise KeyboardInterrupt  # as if it were killed before this part
        written.append(real(*args, **rest))
        return written[-1]

    monkeypatch.setattr("roost.evaluation.cell_run._PART_ROWS", 1)
    monkeypatch.setattr(evaluation_rows, "write_part", write_part)
    folder = requested(digits, "cut", datasets=["noisy"])
    with pytest.raises(KeyboardInterrupt):
        run_session(digits, folder, ranks=2)
    assert len(list((folder.path / "default_inference/best/test%noisy/parts").iterdir())) == 2
    monkeypatch.setattr(evaluation_rows, "write_part", real)
    run_session(digits, folder, ranks=3)
    assert cell_files(folder.path) == files


def test_a_finished_cell_is_found_again(digits: PackageFolder) -> None:
    first = evaluate(digits, "first", checkpoints="best,last", datasets=["noisy"])
    folder = requested(digits, "again", checkpoints="last", datasets=["noisy"])
    printed = run_session(digits, folder)
    assert "1 of 1 cells are found again in first" in printed
    assert f"report: {folder.path}/report.html" in printed
    found = evaluation_folder.read_grid(folder.path)
    assert found is not None
    source = str(found.cells[0].found_in)
    assert source.startswith("evaluations/first/") and source.endswith("test%noisy")
    for name in ("rows.parquet", "summary.json"):
        again = next(iter(folder.path.rglob(name)), None)
        if again is not None:
            assert again.read_bytes() == (first / again.relative_to(folder.path)).read_bytes()


def test_equal_cells_are_computed_once(digits: PackageFolder) -> None:
    """The checkpoint that ``last`` means is the one that is also named by its id."""
    ids = [int(path.name.split("_")[1].split(".")[0]) for path in digits.checkpoints.iterdir()]
    folder = evaluate(
        digits,
        "twins",
        checkpoints=f"last,{max(ids)}",
        datasets=["clean"],
        template="{checkpoint}/{dataset}/{variant}",
    )
    found = evaluation_folder.read_grid(folder)
    assert found is not None
    assert [cell.same_as for cell in found.cells] == [None, found.cells[0].folder]
    one, other = (evaluation_rows.read_rows(folder / cell.folder, ["loss"]) for cell in found.cells)
    assert np.array_equal(one.columns["loss"].values, other.columns["loss"].values)


def test_a_mean_of_checkpoints_has_their_mean_weights(digits: PackageFolder) -> None:
    folder = evaluate(digits, "mean", checkpoints="average(last:2),last", datasets=["clean"])
    found = evaluation_folder.read_grid(folder)
    assert found is not None and len(found.checkpoints[0].ids) == 2
    assert len({one.sha256 for one in found.checkpoints}) == 2
    means = [
        one.summary["metrics"]["loss"]["mean"]
        for one in evaluation_folder.EvaluationFolder(folder).cells()
        if one.summary
    ]
    assert len(set(means)) == 2


def test_a_variant_with_an_unknown_argument(
    digits: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    (tmp_path / "v.yaml").write_text("grid: {temprature: [1, 2]}")
    folder = requested(digits, "typo", variants=tmp_path / "v.yaml")
    with pytest.raises(ContractError) as caught:
        run_session(digits, folder)
    assert caught.value.setting == "temprature" and not (folder.path / "cells.json").exists()
    messages.check(caught.value)


def test_a_failing_batch_is_skipped_or_raises(digits: PackageFolder, tmp_path: Path) -> None:
    code = RUNNER.replace(
        "images, digits = batch", "images, digits = batch\n        assert 3 not in digits[:1]"
    )
    package = changed(digits, tmp_path, runner=code)
    folder = requested(package, "raises", datasets=["noisy"])
    with pytest.raises(AssertionError) as caught:
        run_session(package, folder)
    assert "samples 'noisy/" in "".join(caught.value.__notes__)
    done = evaluate(package, "skips", datasets=["noisy"], on_step_error="skip", ranks=2)
    (one,) = evaluation_folder.EvaluationFolder(done).cells()
    rows = evaluation_rows.read_rows(one.path)
    skipped = evaluation_rows.skipped(rows)
    assert skipped and len(skipped) % 32 == 0 and len(rows) == 547
    assert all("AssertionError" in text for _, text in skipped)
    assert one.summary is not None and one.summary["num_skipped"] == len(skipped)
    assert cell_copies.finished_cells(package.path, without=folder.path) == {}  # for others, it is none


def test_a_mistake_of_the_project_is_not_skipped(digits: PackageFolder, tmp_path: Path) -> None:
    """It would be raised by every batch."""
    mistake = "raise roost.base.errors.ConfigError('no beam')"
    code = RUNNER.replace("images, digits = batch", f"images, digits = batch\n        {mistake}")
    package = changed(digits, tmp_path, runner=code.replace("import roost", "import roost.base.errors", 1))
    with pytest.raises(ConfigError, match="no beam"):
        evaluate(package, "mistake", datasets=["noisy"], on_step_error="skip")


def test_samples_that_cannot_be_read_are_skipped_with_their_ids(
    digits: PackageFolder, tmp_path: Path
) -> None:
    read = """
    def __getitem__(self, index):
        if self.ids[index] == "noisy/0040":
            raise OSError("the file is cut")
        return super().__getitem__(index)

class Dataset("""
    package = changed(digits, tmp_path, dataset=DATASET.replace("\nclass Dataset(", read, 1))
    with pytest.raises(OSError, match="the file is cut"):
        evaluate(package, "raises", datasets=["noisy"])
    folder = evaluate(package, "skips", datasets=["noisy"], on_step_error="skip", ranks=2)
    (one,) = evaluation_folder.EvaluationFolder(folder).cells()
    skipped = evaluation_rows.skipped(evaluation_rows.read_rows(one.path))
    assert [id for id, _ in skipped] == [f"noisy/{number:04d}" for number in range(32, 64)], "its batch"
    assert all("the file is cut" in text for _, text in skipped)


def test_a_metric_of_worst_cases_that_does_not_exist(
    digits: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    package = changed(digits, tmp_path, runner=RUNNER.replace('("loss", "max", 7)', '("los", "max", 7)'))
    folder = requested(package, "missing", datasets=["clean"])
    with pytest.raises(ConfigError) as caught:
        run_session(package, folder)
    assert caught.value.setting == "Runner.worst_cases" and not list(folder.path.rglob("rows.*"))
    messages.check(caught.value)


def test_wrong_worst_cases_are_named_by_the_setting_that_has_them(
    digits: PackageFolder, tmp_path: Path
) -> None:
    """A Runner that a converter has written reads them from a section of its own."""
    build, read = "def build(self):", 'self.worst_cases = self.args["speechain"]["worst_cases"]'
    code = RUNNER.replace("worst_cases = ", "own = ").replace(build, f"{build}\n        {read}")
    package = changed(digits, tmp_path, runner=code)
    for cases in ("[[los, max, 7]]", "[[loss, max]]"):
        asked = {"datasets": ["clean"], "overrides": [f"+speechain.worst_cases={cases}"]}
        with pytest.raises(ConfigError) as caught:
            run_session(package, requested(package, f"of-{cases}", **asked))
        assert caught.value.setting == "speechain.worst_cases"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('self.ids = ["a"] * len(x)', ContractError),
        ("self.ids = list(range(3))", ContractError),
        ('self.groups = {"writer": ["w"]}', ContractError),
        ("self.groups = 5", ContractError),
        ('self.groups = {"writer": [object] * len(x)}', ContractError),
        ("self.groups = {1: [0] * len(x)}", ContractError),
    ],
)
def test_wrong_ids_and_groups(
    digits: PackageFolder, tmp_path: Path, messages: Messages, line: str, error: type[RoostError]
) -> None:
    code = DATASET.replace("class Dataset", f"        {line}\n\nclass Dataset")
    package = changed(digits, tmp_path, dataset=code)
    with pytest.raises(error) as caught:
        run_session(package, requested(package, "wrong"))
    messages.check(caught.value)


def test_a_full_disk_in_the_middle_keeps_finished_cells(
    digits: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluation_rows.write_part

    def write_part(cell: Path, *args: Any, **rest: Any) -> Path:
        if "noisy" in cell.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(cell))
        return real(cell, *args, **rest)

    monkeypatch.setattr(evaluation_rows, "write_part", write_part)
    folder = requested(digits, "full", checkpoints="0")
    with pytest.raises(OSError, match="No space left"):
        run_session(digits, folder)
    found = evaluation_folder.read_grid(folder.path)
    assert found is not None and [one.state for one in found.cells] == ["finished", "waiting"]
    monkeypatch.setattr(evaluation_rows, "write_part", real)
    run_session(digits, folder)
    assert evaluation_folder.EvaluationFolder(folder.path).is_finished


def test_an_empty_batch_and_a_short_last_one(digits: PackageFolder, tmp_path: Path) -> None:
    """The project's collate leaves a batch out: its samples have rows that say so."""
    code = DATASET.replace(
        "        return roost.Data(",
        "        from torch.utils.data import default_collate\n"
        "        collate = lambda rows: None if int(rows[0][1]) == 3 else default_collate(rows)\n"
        "        return roost.Data(collate={'test': collate}, ",
    )
    package = changed(digits, tmp_path, dataset=code)
    folder = evaluate(package, "empty", ranks=2, datasets=["clean"], overrides=["data.test.batch_size=50"])
    (one,) = evaluation_folder.EvaluationFolder(folder).cells()
    rows = evaluation_rows.read_rows(one.path)
    skipped = evaluation_rows.skipped(rows)
    assert len(rows) == 597 and skipped and {text for _, text in skipped} == {"the batch is empty"}
    cell = evaluation_folder.read_cell(one.path)
    assert cell is not None and cell.batches == [(50, 11), (47, 1)]


STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __init__(self, of):
        self.of = of

    def __iter__(self):
        return (self.of[number] for number in range(len(self.of)))

"""


def test_a_set_without_indices(digits: PackageFolder, tmp_path: Path) -> None:
    code = DATASET.replace("class Dataset", f"{STREAM}\nclass Dataset")
    code = code.replace('Digits(x[1200:], y[1200:], "clean")', 'Stream(Digits(x[1200:], y[1200:], ""))')
    package = changed(digits, tmp_path, dataset=code)
    folder = evaluate(package, "stream", ranks=2, datasets=["clean"])
    (one,) = evaluation_folder.EvaluationFolder(folder).cells()
    assert evaluation_rows.read_rows(one.path).ids == list(range(597))


def test_another_request_of_the_same_name_is_refused(
    digits: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    (tmp_path / "v.yaml").write_text(VARIANTS)
    requested(digits, "asked", datasets=["clean"])
    with pytest.raises(Refused) as caught:
        requested(digits, "asked", datasets=["noisy"], variants=tmp_path / "v.yaml", checkpoints="last")
    assert caught.value.exit_code == 5
    messages.check(caught.value)
    assert requested(digits, "asked", datasets=["clean"]).path.name == "asked"
    unnamed = requested(digits, None, datasets=["noisy"], checkpoints="last")
    assert requested(digits, None, datasets=["noisy"], checkpoints="last").path == unnamed.path


def test_a_corrected_command_may_have_the_name_of_one_that_failed(digits: PackageFolder) -> None:
    """An evaluation that ended before its grid was decided has nothing that another request could spoil."""
    folder = requested(digits, "typo", datasets=["claen"])
    with pytest.raises(Refused):
        requested(digits, "typo", datasets=["clean"])  # it may be queued: no session has failed
    number = folder.new_session({"kind": "evaluate", "device": "cpu"})
    sessions.UnsupervisedRecord(folder.session_files / f"{number}.json", number).end("failed", "error")
    assert requested(digits, "typo", datasets=["clean"]).path == folder.path
    assert evaluation_folder.EvaluationFolder(folder.path).request["datasets"] == ["clean"]
    (folder.path / evaluation_folder.CELLS).write_text("[]")
    with pytest.raises(Refused):
        requested(digits, "typo", datasets=["noisy"])


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"checkpoints": "bst"}, UsageError),
        ({"checkpoints": "77"}, NotFound),
        ({"template": "{variant}/{model}"}, UsageError),
        ({"name": "a/b"}, UsageError),
        ({"overrides": ["data.tst.batch_size=4"]}, ConfigError),
        ({"variants": Path("none.yaml")}, NotFound),
        ({"weights": Path("none.pt")}, UsageError),
    ],
    ids=lambda value: (
        next(iter(value)) + str(next(iter(value.values())))[:9] if isinstance(value, dict) else ""
    ),
)
def test_what_cannot_be_asked(
    digits: PackageFolder, messages: Messages, asked: dict[str, Any], error: type[RoostError]
) -> None:
    before = sorted((digits.path / "evaluations").glob("*"))
    with pytest.raises(error) as caught:
        requested(digits, **{"name": "asked-wrong", **asked})
    messages.check(caught.value)
    assert sorted((digits.path / "evaluations").glob("*")) == before


def test_wrong_arguments_are_found_before_the_data_is_built(digits: PackageFolder, tmp_path: Path) -> None:
    package = changed(
        digits, tmp_path, dataset=DATASET.replace("def build(self):", "def build(self):\n        1 / 0")
    )
    (tmp_path / "v.yaml").write_text("grid: {temprature: [1, 2]}")
    with pytest.raises(ContractError):
        run_session(package, requested(package, "typo", variants=tmp_path / "v.yaml"))


def test_a_set_that_does_not_exist(digits: PackageFolder, messages: Messages) -> None:
    with pytest.raises(NotFound) as caught:
        run_session(digits, requested(digits, "sets", datasets=["claen"]))
    messages.check(caught.value)


def test_two_cells_of_one_folder(digits: PackageFolder, messages: Messages) -> None:
    with pytest.raises(ConfigError) as caught:
        run_session(digits, requested(digits, "template", template="{variant}/{checkpoint}"))
    assert caught.value.setting == "--template"
    messages.check(caught.value)


def test_the_weights_of_a_file(digits: PackageFolder, tmp_path: Path) -> None:
    import torch

    from roost.worker.results import weight_mean

    path = next(iter(sorted(digits.checkpoints.iterdir())))
    info, module = weight_mean.read_weights(path)
    torch.save(dict(module["state"]), tmp_path / "net.pt")
    folder = evaluate(
        digits, "file", weights=tmp_path / "net.pt", checkpoints=str(info.id), datasets=["clean"]
    )
    one, other = evaluation_folder.EvaluationFolder(folder).cells()
    assert one.checkpoint == "net.pt" and one.path.parent.name == "net"
    assert (one.path / "summary.json").exists() and other.summary is not None and one.summary is not None
    assert one.summary["metrics"]["loss"]["mean"] == other.summary["metrics"]["loss"]["mean"]


def test_the_plan_of_a_cell_is_kept(tmp_path: Path) -> None:
    assert cells.run_lengths([4, 4, 4, 2]) == [(4, 3), (2, 1)]
    found = EvaluatedSet("test", None, range(14), {}, [4, 4, 4, 2])  # type: ignore[arg-type]
    assert found.firsts() == [0, 4, 8, 12]
    other = EvaluatedSet("test", None, range(14), {"a": ["b"] * 14}, [4, 4, 4, 2])  # type: ignore[arg-type]
    assert found.digest() != other.digest()


def test_a_changed_cell_is_refused_not_replaced(digits: PackageFolder) -> None:
    folder = evaluate(digits, "identity", datasets=["clean"])
    found = evaluation_folder.read_grid(folder)
    assert found is not None
    place = folder / found.cells[0].folder
    cell = evaluation_folder.read_cell(place)
    assert cell is not None
    other = msgspec.structs.replace(cell, identity=msgspec.structs.replace(cell.identity, variant="0" * 64))
    with pytest.raises(Refused, match="other variant"):
        cells.prepare_cell(place, other)
    assert json.loads((place / "cell.json").read_text())["identity"]["variant"] == cell.identity.variant


def begun(package: PackageFolder, monkeypatch: pytest.MonkeyPatch, **request: Any) -> SessionFolder:
    """An evaluation of a set, ended after its first part."""
    real = evaluation_rows.write_part
    written: list[Path] = []

    def write_part(*args: Any, **rest: Any) -> Path:
        if written:
            raise KeyboardInterrupt
        written.append(real(*args, **rest))
        return written[-1]

    folder = requested(package, "begun", datasets=["noisy"], **request)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("roost.evaluation.cell_run._PART_ROWS", 1)
        patched.setattr(evaluation_rows, "write_part", write_part)
        run_session(package, folder)
    return folder


def checkpoint_path(package: PackageFolder, place: int) -> Path:
    """A checkpoint by its place, the oldest first."""
    return sorted(package.checkpoints.iterdir(), key=lambda path: int(path.name[6:].split(".")[0]))[place]


@pytest.mark.parametrize("what", ["groups", "code", "weights", "gone"])
def test_what_has_changed_is_not_mixed(
    digits: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages, what: str
) -> None:
    """A cell that was begun is not gone on with by other code, data or weights."""
    package = changed(digits, tmp_path)
    code, error = package.path / "Model" / "Runner.py", Refused
    data = code.read_bytes()
    manifest = json.loads((package.path / "manifest.json").read_text())
    manifest["files"] = {
        "Model/Runner.py": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    }  # a project's own package lists it
    (package.path / "manifest.json").write_text(json.dumps(manifest))
    package = PackageFolder.open(package.path)
    folder = begun(package, monkeypatch, checkpoints="last")
    newest = checkpoint_path(package, -1)
    if what == "groups":
        text = (package.path / "Dataset.py").read_text()
        (package.path / "Dataset.py").write_text(text.replace("number % 7", "number % 5"))
    elif what == "code":
        code.write_text(RUNNER.replace("scores.argmax(1)", "scores.argmin(1)"))
    else:
        shutil.rmtree(newest)
        error = NotFound if what == "gone" else CheckpointError
        if what == "weights":
            shutil.copytree(checkpoint_path(package, 0), newest)
    with pytest.raises(error) as caught:
        run_session(package, folder)
    messages.check(caught.value)
    assert not list(folder.path.rglob("rows.*"))


@pytest.mark.parametrize("after", ["checking", "reading"])
def test_a_checkpoint_that_the_training_removes_meanwhile(
    digits: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Between its check and its manifest it is gone, not damaged; once its weights are read it may go."""
    package = changed(digits, tmp_path)
    folder = begun(package, monkeypatch, checkpoints="last")
    real = weight_mean.read_weights

    def read_weights(path: Path, **options: Any) -> Any:
        found = real(path, **options) if after == "reading" else None
        shutil.rmtree(path)
        if found is None:
            raise Damaged("its MANIFEST.json cannot be read: it is missing")
        return found

    monkeypatch.setattr(weight_mean, "read_weights", read_weights)
    if after == "reading":
        run_session(package, folder)
        assert evaluation_folder.EvaluationFolder(folder.path).is_finished
        return
    with pytest.raises(NotFound, match="is gone"):
        run_session(package, folder)


@pytest.mark.parametrize(
    "line",
    [
        "self.ids = [True, *range(1, len(x))]",
        "self.ids = [1, 1.0, *range(2, len(x))]",
        'self.ids = [float("inf"), *range(1, len(x))]',
        'self.ids = ["\\udc80", *range(1, len(x))]',
        "self.ids = [0.5, 2**53 + 1, *range(2, len(x))]",
        "self.ids = torch.zeros(len(x), 2)",
        "self.ids = 5",
        "self.ids = list(range(len(x) + 1))",
        'self.groups = {"writer": "w" * len(x)}',
        'self.groups = {"writer": None}',
        'self.groups = {"writer": torch.zeros(len(x), 2)}',
        'self.groups = {"writer": ["\\udc80"] * len(x)}',
    ],
)
def test_ids_and_groups_that_no_row_can_hold(digits: PackageFolder, tmp_path: Path, line: str) -> None:
    code = DATASET.replace("class Dataset", f"        {line}\n\nclass Dataset")
    package = changed(digits, tmp_path, dataset=code)
    folder = requested(package, "wrong", datasets=["noisy"])
    with pytest.raises(ContractError) as caught:
        run_session(package, folder)
    assert str(caught.value.setting).startswith(("ids", "groups")) and not list(folder.path.rglob("parts"))


@pytest.mark.parametrize(
    "template",
    ["cells.json/{variant}", "report.html/{variant}", ".{variant}.tmp-0123456789ab", "a\0", "a" * 230],
)
def test_a_folder_that_is_none_for_a_cell(digits: PackageFolder, template: str) -> None:
    folder = requested(digits, "template", template=template, datasets=["noisy"])
    with pytest.raises(ConfigError) as caught:
        run_session(digits, folder)
    assert caught.value.setting == "--template" and not (folder.path / "cells.json").exists()


@pytest.mark.parametrize("template", ["{variant:{checkpoint}}", "{variant:>300}", "{variant!r}"])
def test_a_template_has_names_alone(digits: PackageFolder, template: str) -> None:
    with pytest.raises(UsageError) as caught:
        requested(digits, "template", template=template)
    assert caught.value.setting == "--template"


def test_the_request_with_nan_goes_on(digits: PackageFolder, tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text("noise: .nan\n")
    first = requested(digits, "nan", variants=tmp_path / "v.yaml")
    assert requested(digits, "nan", variants=tmp_path / "v.yaml").path == first.path


@pytest.mark.parametrize("name", ["self", "batch"])
def test_the_batch_is_no_argument_of_a_variant(name: str) -> None:
    class Tested(roost.Runner):
        def test(self, batch: Any, **variant: Any) -> Any: ...

    variant_arguments.require_arguments(Tested, {"a": {"beam": 1}})
    with pytest.raises(ContractError) as caught:
        variant_arguments.require_arguments(Tested, {"a": {name: 1}})
    assert caught.value.setting == name


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(2, dtype=torch.complex64),
        torch.tensor(1j),
        torch.eye(2).to_sparse(),
        torch.ones(2, device="meta"),
        np.array(1j),
        10**400,
        [{"file": "/etc/passwd"}] * 2,
    ],
)
def test_values_that_no_row_can_hold(tmp_path: Path, value: Any) -> None:
    with FileWriter(tmp_path) as files, pytest.raises(ContractError):
        split_values({"x": value}, ["a", "b"], files)


@pytest.mark.parametrize("name", ["samples", "batch"])
def test_a_number_of_a_batch_does_not_replace_its_size(tmp_path: Path, name: str) -> None:
    with FileWriter(tmp_path) as files:
        assert split_values({name: torch.ones(2)}, ["a", "b"], files).columns
        with pytest.raises(ContractError):
            split_values({name: 0.5}, ["a", "b"], files)


def test_a_metric_may_be_an_error(tmp_path: Path) -> None:
    """The column with the errors of skipped samples has a name that no metric has."""
    with FileWriter(tmp_path) as files:
        assert split_values({"error": torch.ones(2)}, ["a", "b"], files).columns
        with pytest.raises(ContractError):
            split_values({"skipped/error": torch.ones(2)}, ["a", "b"], files)


def test_floats_that_numpy_or_parquet_lacks(tmp_path: Path) -> None:
    values = {"x": torch.ones(2, 3).to(torch.float8_e4m3fn), "y": np.ones((2, 3), np.longdouble)}
    with FileWriter(tmp_path) as files:
        found = split_values(values, ["a", "b"], files)
    assert [found.columns[name].dtype.name for name in values] == ["float32", "float64"]


def test_the_grid_is_written_at_its_beginning_and_its_end(
    digits: PackageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each cell: a grid of thousands would write gigabytes. Meanwhile the seals of cells count."""
    (tmp_path / "variants.yaml").write_text(VARIANTS)
    written, seen = [], []
    folder = requested(digits, "often", variants=tmp_path / "variants.yaml", checkpoints="0,1")

    def count(operation: str, path: str) -> None:
        if (operation, Path(path).name) == ("rename", "cells.json"):
            written.append([one.state for one in evaluation_folder.EvaluationFolder(folder.path).cells()])
        elif (operation, Path(path).name) == ("rename", "summary.json"):
            seen.append([one.state for one in evaluation_folder.EvaluationFolder(folder.path).cells()])

    monkeypatch.setattr(durable, "fault", count)
    printed = run_session(digits, folder)
    monkeypatch.undo()
    assert written == [[], ["finished"] * 24]
    assert [one.count("finished") for one in seen] == list(range(24))
    assert [f"; {number} of 24 cells" in printed for number in range(25)] == [False, *[True] * 24]
    stored = json.loads((folder.path / "cells.json").read_text())["cells"]
    assert [one["state"] for one in stored] == ["finished"] * 24


@pytest.mark.parametrize("cut_at", ["cells.json", "report.html", "seal.json"])
def test_cut_after_its_last_cell_it_goes_on_with_the_report(
    digits: PackageFolder, monkeypatch: pytest.MonkeyPatch, cut_at: str
) -> None:
    folder = requested(digits, "reported", checkpoints="0", datasets=["clean"])
    renames = []

    def cut(operation: str, path: str) -> None:
        if (operation, Path(path).name) == ("rename", cut_at):
            renames.append(path)
            if cut_at == "report.html" or len(renames) == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(durable, "fault", cut)
        run_session(digits, folder)
    found = evaluation_folder.EvaluationFolder(folder.path)
    assert [one.state for one in found.cells()] == ["finished"] and not found.is_finished
    run_session(digits, folder)
    assert found.is_finished


@pytest.mark.parametrize("twins", ["copied", "not copied"])
def test_cut_between_a_cell_and_its_copies(
    digits: PackageFolder, monkeypatch: pytest.MonkeyPatch, twins: str
) -> None:
    folder = requested(digits, "twins", checkpoints="last,average(last:1)", datasets=["clean"])
    real = cell_copies.copy_to_equal_cells

    def cut(*arguments: Any) -> None:
        if twins == "copied":
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(cell_copies, "copy_to_equal_cells", cut)
        run_session(digits, folder)
    found = evaluation_folder.EvaluationFolder(folder.path)
    states = [one.state for one in found.cells()]
    assert states == ["finished", "finished" if twins == "copied" else "waiting"] and not found.is_finished
    run_session(digits, folder, ranks=2)
    assert found.is_finished


def test_the_progress_is_that_of_the_whole_grid(digits: PackageFolder) -> None:
    """Also of a session that goes on: then nothing remains of the cells that were finished."""
    folder = requested(digits, "progress", checkpoints="0,1", datasets=["clean"])
    run_session(digits, folder, ranks=2)
    record = live_progress.read(folder.progress)
    assert record is not None and record.phase == "ended" and record.fraction == 1.0
    assert (record.step, record.total_steps, record.samples) == (2, 2, 2 * 597)


def test_the_progress_is_that_of_all_ranks(digits: PackageFolder) -> None:
    """Rank 0 of two, whose batches are 10 of 19, has 309 of the 597 samples; then rank 1 has the others."""
    folder = requested(digits, "of_ranks", datasets=["clean"], checkpoints="0")
    shown = []
    for rank in (0, 1):
        with package_code(digits):
            evaluate_task.evaluate_after_training(digits, folder.path, device="cpu", rank=rank, world_size=2)
        shown.append(live_progress.read(folder.progress))
    of_one, of_both = shown
    assert of_one is not None and (of_one.phase, of_one.samples) == ("testing", 309)
    assert of_both is not None and (of_both.phase, of_both.samples) == ("ended", 597)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_is_seen_to_work_on(digits: PackageFolder, rank: int) -> None:
    """Also after a training: a supervisor, which reads the file of the session, would report a stall."""
    before = (digits.progress.read_bytes(), live_progress.read(digits.progress))
    folder = requested(digits, "of_a_rank", checkpoints="0")
    with package_code(digits):
        evaluate_task.evaluate_after_training(digits, folder.path, device="cpu", rank=rank, world_size=2)
    assert any(folder.progress.read_bytes()[256 * rank :]), "in the file of an evaluation of its own"
    assert digits.progress.read_bytes() != before[0] and live_progress.read(digits.progress) == before[1]


def test_the_test_at_the_end_of_a_training_has_no_arguments(tmp_path: Path) -> None:
    """It averages what `test` returns as numbers; validation measures `evaluate`, here the loss."""
    package = digits_package(tmp_path, test_at_end="last")
    row = package.records().last()
    names = ("loss", "correct", "mean_score", "error_rate")
    assert {f"test/clean/{name}" for name in names} <= set(row)
    assert {name for name in row if name.startswith("valid/")} == {"valid/loss"}
    folder = evaluate(package, "after", checkpoints="last")
    for one in evaluation_folder.EvaluationFolder(folder).cells():
        assert one.summary is not None
        for name in ("loss", "correct", "error_rate"):
            mean = one.summary["metrics"][name]["mean"]
            assert row[f"{one.dataset}/{name}"] == pytest.approx(mean, rel=1e-5), name


YAML_CODE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def numbers(count):
    x = torch.arange(count * 4, dtype=torch.float32).view(count, 4) % 7
    return TensorDataset(x, (x.sum(1) > 9).long())

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

def ids(made):
    return [f"n{number}" for number in range(len(made))]

def decode(runner, batch, shift=0):
    said = runner.model(batch[0]).argmax(1) + shift
    return {"hit": said == batch[1], "text": [str(one) for one in said.tolist()]}
"""


def test_a_project_of_a_config_alone(tmp_path: Path) -> None:
    """`runner.test` names a function; ids and groups are keys of a set."""
    package = trained(
        tmp_path,
        runner={
            "model": {"class": "Functions.py:Net"},
            "losses": {"label": {"class": "torch.nn.CrossEntropyLoss"}},
            "test": "Functions.py:decode",
            "worst_cases": [["hit", "min", 2]],
        },
        dataset={
            "train": {"class": "Functions.py:numbers", "count": 20},
            "test": {
                "class": "Functions.py:numbers",
                "count": 10,
                "ids": "Functions.py:ids",
                "groups": {"half": ["first"] * 5 + ["second"] * 5, "file": "labels.txt"},
            },
        },
        files={"Functions.py": YAML_CODE, "labels.txt": "\n".join("aabbccddee")},
        width=None,
    )
    (tmp_path / "v.yaml").write_text("grid: {shift: [0, 1]}")
    folder = evaluate(package, "yaml", variants=tmp_path / "v.yaml", checkpoints="last")
    plain, shifted = evaluation_folder.EvaluationFolder(folder).cells()
    rows = evaluation_rows.read_rows(plain.path)
    assert rows.ids == [f"n{number}" for number in range(10)]
    assert rows.row(7)["group/half"] == "second" and rows.row(7)["group/file"] == "d"
    assert rows.row(0)["text"] != evaluation_rows.read_rows(shifted.path).row(0)["text"]
    assert plain.summary is not None and len(plain.summary["worst"][0]["cases"]) == 2
    wrong = requested(package, "wrong", overrides=["runner.worst_cases=[[hot, min, 2]]"])
    with pytest.raises(ConfigError) as wrong_cases:
        run_session(package, wrong)
    assert wrong_cases.value.setting == "runner.worst_cases"
    (tmp_path / "w.yaml").write_text("grid: {shfit: [0, 1]}")
    with pytest.raises(ContractError) as caught:
        run_session(package, requested(package, "typo", variants=tmp_path / "w.yaml"))
    assert caught.value.setting == "shfit"
