from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.exception_record import record_exception
from roost.worker.causes import cause_table
from roost.worker.causes.cause import FailureContext

MISSING = ModuleNotFoundError("No module named 'cv2'")


def test_what_it_was_raised_from_counts_and_what_was_handled_does_not() -> None:
    direct, meanwhile = ValueError("cannot read pictures"), ValueError("cannot read pictures")
    direct.__cause__, meanwhile.__context__ = MISSING, MISSING
    cause = cause_table.find(record_exception(direct), FailureContext())
    assert cause is not None and "cv2" in cause.description
    assert cause_table.find(record_exception(meanwhile), FailureContext()) is None


def test_the_error_itself_comes_first() -> None:
    error = RuntimeError("No CUDA GPUs are available")
    error.__cause__ = MISSING
    cause = cause_table.find(record_exception(error), FailureContext())
    assert cause is not None and "GPU" in cause.description and "cv2" not in cause.description


def test_a_group_of_one_is_that_one() -> None:
    one, two = (ExceptionGroup("several", errors) for errors in ([MISSING], [MISSING, ValueError("x")]))
    assert cause_table.find(record_exception(one), FailureContext()) is not None
    assert cause_table.find(record_exception(two), FailureContext()) is None


def test_nothing_is_known_of_most_errors() -> None:
    for error in (
        ValueError("x"),
        KeyError("y"),
        RuntimeError(),
        AssertionError(),
        ZeroDivisionError("by 0"),
    ):
        assert cause_table.find(record_exception(error), FailureContext()) is None


def test_a_row_that_fails_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that asks for the working folder, after the package was removed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    error = FileNotFoundError(2, "No such file or directory", "data.csv")
    assert cause_table.find(record_exception(error), FailureContext(gone)) is None
