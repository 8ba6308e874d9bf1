from __future__ import annotations

import signal
from typing import Any

import pytest

from roost.base.errors import ContractError, RoostError
from roost.base.exception_record import RemoteTraceback
from roost.train.data.workers import worker_errors
from roost.train.data.workers.batch_codec import from_bytes, to_bytes
from tests.messages import Messages


@pytest.mark.parametrize(
    ("exit_code", "fact"),
    [
        (-signal.SIGKILL, "kernel"),
        (-signal.SIGBUS, "bus error"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (-signal.SIGABRT, "SIGABRT"),
        (-signal.SIGALRM, "SIGALRM"),
        (-50, "signal 50"),
        (0, "exit code 0"),
        (3, "exit code 3"),
        (None, ""),
    ],
)
def test_how_it_died(exit_code: int | None, fact: str, messages: Messages) -> None:
    error = worker_errors.worker_died(1, 77, exit_code, "sample 3 of the training set")
    assert isinstance(error, RoostError) and error.fix
    assert "worker 1 (pid 77)" in error.message and fact in error.message
    assert "sample 3 of the training set" in error.message
    assert "sample" not in worker_errors.worker_died(1, 77, exit_code, "").message
    messages.check(error)
    messages.check(worker_errors.worker_died(1, 77, exit_code, "").message)


def test_the_thread_that_started_it(messages: Messages) -> None:
    error = worker_errors.worker_died(0, 7, -signal.SIGKILL, "", has_starter=False)
    assert "thread" in error.message and "memory" not in str(error)
    messages.check(error)


def test_silence(capsys: pytest.CaptureFixture[str], messages: Messages) -> None:
    error = worker_errors.worker_hangs(2, 77, 300.0, "sample 3", "Thread 1:\n  a.py")
    assert error.setting == "data.loader_timeout" and error.fix
    assert all(fact in error.message for fact in ("worker 2 (pid 77)", "300 s", "sample 3"))
    messages.check(error)
    head, stacks = capsys.readouterr().out.split("\n", 1)
    assert "worker 2 (pid 77)" in head and stacks == "Thread 1:\n  a.py\n"


# --- an exception on its way --------------------------------------------------------------------------------


def sent(error: Exception) -> Exception:
    """Raised, and on the other side of a process."""
    try:
        raise error
    except Exception as caught:  # noqa: BLE001
        return worker_errors.decode_exception(from_bytes(to_bytes(worker_errors.encode_exception(caught))), 2)


class WithFields(ValueError):
    def __init__(self, path: str, *, line: int) -> None:
        super().__init__(f"cannot read {path}")
        self.path, self.line = path, line


class Doubling(Exception):
    """What it is made of is not what it keeps."""

    def __init__(self, path: str) -> None:
        super().__init__(f"cannot read {path}")


class Locked(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.close = lambda: None


class Mute(Locked):
    def __str__(self) -> str:
        raise KeyError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("a"),
        FileNotFoundError(2, "no such file", "x.png"),
        UnicodeDecodeError("utf-8", b"a", 0, 1, "no"),
        ModuleNotFoundError("No module named 'x'", name="x"),
        MemoryError(),
        StopIteration(3),
        WithFields("x.png", line=3),
        Doubling("x.png"),
        ContractError("no", setting="a.b", received=3, where="c.yaml:1", fix="do"),
        ExceptionGroup("two", [ValueError("a"), TypeError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_is_the_same_again(error: Exception) -> None:
    found = sent(error)
    assert type(found) is type(error) and str(found) == str(error)
    for name in ("path", "line", "filename", "errno", "name", "message", "setting", "where", "fix", "value"):
        assert getattr(found, name, None) == getattr(error, name, None)
    cause = found.__cause__
    assert isinstance(cause, RemoteTraceback) and "worker 2" in cause.raised_in
    assert "raise error" in cause.text


def test_notes_and_causes() -> None:
    error = ValueError("b")
    error.__cause__ = KeyError("a")
    error.add_note("while reading")
    found = sent(error)
    assert found.__notes__ == ["while reading"]
    place, _, text = str(found.__cause__).partition("\n")
    assert "worker 2" in place
    assert text.startswith("KeyError: 'a'\n\nThe above exception was the direct cause")


def test_one_that_cannot_be_sent_says_the_same() -> None:
    error = Locked("no")
    error.add_note("while reading")
    found = sent(error)
    assert type(found) is RuntimeError and str(found).endswith("Locked: no")
    assert found.__notes__ == ["while reading"] and "Locked: no" in str(found.__cause__)
    assert str(sent(Mute("no"))).endswith("Mute: <exception str() failed>")


def test_one_of_a_class_that_only_exists_there() -> None:
    kind: Any = type("Local", (Exception,), {})
    assert str(sent(kind("no"))).endswith("Local: no")
