from __future__ import annotations

import errno
from collections.abc import Callable

import numpy as np
import pytest
import torch

from roost.base.exception_record import ExceptionRecord, RemoteTraceback, record_exception
from tests.worker.causes.scenes import in_a_worker, in_a_worker_of_ours, of


def fails() -> None:
    raise ValueError("no good")


def test_what_it_is_and_where() -> None:
    found = of(fails)
    assert (found.qualified_name, found.name, found.text, found.raised_in) == (
        "ValueError",
        "ValueError",
        "no good",
        "",
    )
    assert found.is_a("ValueError") and found.is_a("OSError", "Exception") and not found.is_a("OSError")
    assert [frame.name for frame in found.frames][-1] == "fails"
    assert found.frames[-1].line == 'raise ValueError("no good")'


def test_the_chain_tells_cause_from_what_was_handled() -> None:
    def causes() -> None:
        try:
            fails()
        except ValueError as error:
            raise TypeError("second") from error

    def handles() -> None:
        try:
            causes()
        except TypeError:
            raise KeyError("third")  # noqa: B904  - on purpose

    def hides() -> None:
        try:
            fails()
        except ValueError:
            raise TypeError("alone") from None

    third = of(handles)
    assert [one.name for one in third.chain()] == ["KeyError", "TypeError", "ValueError"]
    assert third.cause is None and third.context is not None and third.context.cause is not None
    assert [one.text for one in of(hides).chain()] == ["alone"]


def test_a_chain_without_end_is_cut() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert len(list(record_exception(first).chain())) == 6

    error: Exception = ValueError("0")
    for number in range(5000):
        newer = ValueError(str(number))
        newer.__context__ = error
        error = newer
    assert len(list(record_exception(error).chain())) == 6


def test_groups_and_notes() -> None:
    error = ExceptionGroup("two of them", [ValueError("a"), TypeError("b")])
    error.add_note("while reading")
    found = record_exception(error)
    assert [one.text for one in found.members] == ["a", "b"] and found.notes == ("while reading",)
    assert found.is_a("ExceptionGroup")


def test_an_error_that_cannot_be_told_is_told() -> None:
    class Mute(Exception):
        __notes__ = 3  # type: ignore[assignment]

        def __str__(self) -> str:
            return str(1 / 0)

    found = record_exception(Mute())
    assert found.text == "<its str() raised ZeroDivisionError>" and found.notes == ()


def test_a_syntax_error_has_its_place() -> None:
    found = of(lambda: compile("def f(:\n    pass", "/p/net.py", "exec"))
    assert (found.frames[-1].filename, found.frames[-1].lineno) == ("/p/net.py", 1)
    assert found.text == "invalid syntax" and found.caret == "      ^"
    found = of(lambda: compile("if 1:\npass", "/p/net.py", "exec"))
    assert found.qualified_name == "IndentationError" and found.frames[-1].lineno == 2 and found.caret == "^"
    assert record_exception(SyntaxError("made by hand")).frames == ()


# --- loader workers ---------------------------------------------------------------------------------------

Worker = Callable[[Callable[[], object]], ExceptionRecord]
of_any_loader = pytest.mark.parametrize("in_a_worker", [in_a_worker, in_a_worker_of_ours])


@pytest.mark.parametrize(
    ("in_a_worker", "place"),
    [(in_a_worker, "in DataLoader worker process 0"), (in_a_worker_of_ours, "in loader worker 0")],
)
def test_the_error_of_a_loader_worker_is_that_of_the_worker(in_a_worker: Worker, place: str) -> None:
    found = in_a_worker(fails)
    assert (found.qualified_name, found.text, found.raised_in) == ("ValueError", "no good", place)
    assert found.is_a("Exception") and found.cause is None
    assert found.frames[-1].name == "fails" and found.frames[-1].line == 'raise ValueError("no good")'
    assert all("dataloader.py" not in frame.filename for frame in found.frames)
    assert all("ring.py" not in frame.filename for frame in found.frames)


@of_any_loader
def test_a_chain_in_a_loader_worker(in_a_worker: Worker) -> None:
    def causes() -> None:
        try:
            fails()
        except ValueError as error:
            raise RuntimeError("of many\nlines") from error

    found = in_a_worker(causes)
    assert found.text == "of many\nlines" and found.cause is not None
    assert (found.cause.qualified_name, found.cause.text) == ("ValueError", "no good")
    assert [frame.name for frame in found.cause.frames] == ["causes", "fails"]


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        (lambda: {}["a"], "KeyError", "'a'"),
        (lambda: open("/no/way"), "FileNotFoundError", "[Errno 2] No such file or directory: '/no/way'"),  # noqa: SIM115
        (lambda: np.empty(10**17), "numpy._core._exceptions._ArrayMemoryError", "Unable to allocate"),
        (lambda: compile("x = = 1", "/p/n.py", "exec"), "SyntaxError", "invalid syntax"),
        (lambda: torch.empty(10**15, dtype=torch.uint8), "RuntimeError", "[enforce fail at alloc_cpu.cpp"),
    ],
)  # fmt: skip
@of_any_loader
def test_of_any_class(in_a_worker: Worker, how: Callable[[], object], kind: str, text: str) -> None:
    found = in_a_worker(how)
    assert found.qualified_name == kind and found.text.startswith(text) and found.raised_in


@of_any_loader
def test_a_recursion_in_a_loader_worker_keeps_its_depth(in_a_worker: Worker) -> None:
    def deep() -> None:
        deep()

    found = in_a_worker(deep)
    assert found.qualified_name == "RecursionError" and len(found.frames) > 500


@of_any_loader
def test_the_note_of_the_sample_is_a_note_again(in_a_worker: Worker) -> None:
    def noted() -> None:
        error = ValueError("of two\nlines")
        error.add_note("while reading sample 3 of Digits")
        raise error

    found = in_a_worker(noted)
    assert found.text == "of two\nlines" and found.notes == ("while reading sample 3 of Digits",)


class Locked(OSError):
    """Cannot be sent from one process to another."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.close = lambda: None


def test_what_only_a_worker_of_ours_keeps() -> None:
    def noted() -> None:
        error = KeyError("a")
        error.add_note("one")
        error.add_note("of two\nlines")
        raise error

    def group() -> None:
        raise ExceptionGroup("two of them", [ValueError("a"), TypeError("b")])

    def nowhere() -> None:
        compile("x = = 1", "/p/n.py", "exec")

    def locked() -> None:
        raise Locked("no good")

    found = in_a_worker_of_ours(noted)
    assert found.notes == ("one", "of two\nlines") and found.text == "'a'" and found.is_a("LookupError")
    found = in_a_worker_of_ours(group)
    assert [one.text for one in found.members] == ["a", "b"] and found.raised_in.endswith("worker 0")
    found = in_a_worker_of_ours(nowhere)
    assert (found.frames[-1].filename, found.frames[-1].lineno) == ("/p/n.py", 1) and found.caret == ""
    found = in_a_worker_of_ours(locked)
    assert found.name == "Locked" and found.text == "no good" and found.frames[-1].name == "locked"


def test_a_traceback_from_elsewhere_that_is_none() -> None:
    error = ValueError("a")
    error.__cause__ = RemoteTraceback("nothing", "in loader worker 1")
    found = record_exception(error)
    assert (found.qualified_name, found.text, found.raised_in, found.frames) == (
        "ValueError",
        "a",
        "in loader worker 1",
        (),
    )


@pytest.mark.parametrize(
    "text",
    [
        "Caught ValueError in DataLoader worker process 0.\nOriginal Tra",
        "Caught a cold in DataLoader worker process 0.",
        "It said: Caught ValueError in x.\nOriginal Traceback (most recent call last):\nValueError: a",
        'Caught X in y.\nOriginal Traceback (most recent call last):\n  File "a", line 1, in b\n',
    ],
)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    found = record_exception(RuntimeError(text))
    assert (found.text, found.raised_in) == (text, "")


def test_an_os_error_reads_as_python_writes_it() -> None:
    assert (
        record_exception(OSError(errno.EMFILE, "Too many open files", "/x")).text
        == "[Errno 24] Too many open files: '/x'"
    )


def test_what_it_says_in_one_piece() -> None:
    error = ValueError("a")
    error.add_note("b")
    assert record_exception(error).text_with_notes == "a; b"
