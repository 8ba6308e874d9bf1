from __future__ import annotations

import signal
from typing import Any

import pytest

from roost.base.errors import ContractError, RoostError
from roost.base.raised import Elsewhere
from roost.train.data import deaths
from roost.train.data.packing import from_bytes, to_bytes


@pytest.mark.parametrize(
    ("exit_code", "says"),
    [
        (-signal.SIGKILL, "was killed from outside, probably by the kernel because memory ran out"),
        (-signal.SIGBUS, "died of a bus error"),
        (-signal.SIGSEGV, "crashed in compiled code (SIGSEGV)"),
        (-signal.SIGABRT, "crashed in compiled code (SIGABRT)"),
        (-signal.SIGALRM, "was ended by SIGALRM"),
        (-50, "was ended by signal 50"),
        (0, "ended itself with exit code 0 (sys.exit or os._exit)"),
        (3, "ended itself with exit code 3 (sys.exit or os._exit)"),
        (None, "is gone"),
    ],
)
def test_how_it_died(exit_code: int | None, says: str) -> None:
    error = deaths.died(1, 77, exit_code, "sample 3 of the training set")
    assert isinstance(error, RoostError) and error.fix
    assert error.message.startswith(f"loader worker 1 (pid 77) {says}")
    assert error.message.endswith(" while it read sample 3 of the training set")
    assert " while it read" not in deaths.died(1, 77, exit_code, "").message


def test_the_thread_that_started_it() -> None:
    error = deaths.died(0, 7, -signal.SIGKILL, "", has_starter=False)
    assert "ended with the thread that had started it" in error.message
    assert "memory" not in str(error)


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    error = deaths.silent(2, 77, 300.0, "sample 3", "Thread 1:\n  a.py")
    assert str(error).startswith(
        "data.loader_timeout: loader worker 2 (pid 77) has got nowhere for 300 s in sample 3; its stacks are "
        "above; received 300.0. To mend it: "
    )
    assert capsys.readouterr().out == "the stacks of loader worker 2 (pid 77):\nThread 1:\n  a.py\n"


# --- an exception on its way --------------------------------------------------------------------------------


def sent(error: Exception) -> Exception:
    """Raised, and on the other side of a process."""
    try:
        raise error
    except Exception as caught:  # noqa: BLE001
        return deaths.received(from_bytes(to_bytes(deaths.to_send(caught))), 2)


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
    assert isinstance(cause, Elsewhere) and cause.place == "in loader worker 2"
    assert "raise error" in cause.text


def test_notes_and_causes() -> None:
    error = ValueError("b")
    error.__cause__ = KeyError("a")
    error.add_note("while reading")
    found = sent(error)
    assert found.__notes__ == ["while reading"]
    text = str(found.__cause__)
    assert text.startswith("in loader worker 2:\nKeyError: 'a'\n\nThe above exception was the direct cause")


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
