from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import ConfigError, ContractError, PeerLost
from roost.package import live_progress
from roost.worker import failure_report
from roost.worker.failure_report import FailureReport, explain
from tests.base.test_traceback_frames import module
from tests.messages import Messages


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("ROOST_DEBUG", raising=False)


def caught(function: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as found:
        function()
    return found.value


def of(folder: Path, code: str) -> FailureReport:
    """The report of the error that ``f()`` of a project's file raises."""
    return explain(caught(module(folder, code).f), own=[folder])


HEAD = "Traceback "  # and which lines it has


def test_a_plain_error(tmp_path: Path, messages: Messages) -> None:
    failure = of(tmp_path, "def f():\n    raise ValueError('no good')\n")
    assert (failure.reason, failure.error, failure.exit_code) == ("exception", "ValueError: no good", 1)
    head, *lines = failure.lines
    assert head.startswith(HEAD)
    messages.check(head)
    assert lines == ["  net.py:2 in f", "    raise ValueError('no good')", "ValueError: no good"]
    assert (
        failure.full_traceback.startswith("Traceback (most recent call last):\n")
        and str(tmp_path) in failure.full_traceback
    )


def test_a_known_cause_is_printed_first(tmp_path: Path, messages: Messages) -> None:
    failure = of(tmp_path, "import torch\ndef f():\n    torch.ones(2, 3) @ torch.ones(5, 4)\n")
    assert "2x3" in failure.error and failure.reason == "exception"
    assert failure.lines[0] == f"error: {failure.error}" and failure.lines[2].startswith(HEAD)
    assert failure.lines[3] == "  net.py:3 in f"
    messages.check("\n".join(failure.lines[:3]))
    assert failure.lines[-1] == "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)"


def test_the_folders_of_an_analysis(tmp_path: Path) -> None:
    net = module(tmp_path / "package", "def f():\n    raise ValueError('x')\n")
    script = module(tmp_path / "script", "def g(f):\n    f()\n", "look.py")
    folders = [tmp_path / "package", tmp_path / "script"]
    failure = explain(caught(lambda: script.g(net.f)), own=folders)
    assert failure.lines[1] == "  look.py:2 in g" and failure.lines[3] == "  net.py:2 in f"


def test_the_record_keeps_one_harmless_line(tmp_path: Path) -> None:
    def error(text: str, *notes: str) -> str:
        found = ValueError(text)
        for note in notes:
            found.add_note(note)
        return explain(found, own=[tmp_path]).error

    assert error("\n\nfirst\nsecond", "a note", "of\ntwo") == "ValueError: first; a note; of two"
    assert error("\x1b[31mred\udc80") == "ValueError: \\x1b[31mred\\udc80"
    assert len(error("x" * 10**6)) < 600
    assert explain(KeyError(), own=[]).error == "KeyError"
    assert of(tmp_path, "def f():\n    assert 1 == 2\n").error == "AssertionError at net.py:2: assert 1 == 2"


def test_the_loader_worker_is_named(tmp_path: Path) -> None:
    code = (
        "from torch.utils.data import DataLoader\n"
        "class Set:\n    def __len__(self): return 3\n    def __getitem__(self, i):\n        return {}['a']\n"
        "def f():\n    fetching = iter(DataLoader(Set(), num_workers=1, multiprocessing_context='fork'))\n"
        "    try: next(fetching)\n    finally: fetching._shutdown_workers()\n"
    )
    failure = of(tmp_path, code)
    assert failure.error == "KeyError: 'a' (in DataLoader worker process 0)"
    assert failure.lines[1:3] == ("  net.py:5 in __getitem__", "    return {}['a']")
    assert failure.lines[3:] == ("KeyError (in DataLoader worker process 0): 'a'",)
    assert "Original Traceback" in failure.full_traceback


def test_the_loader_worker_of_ours_is_named(tmp_path: Path, messages: Messages) -> None:
    code = (
        "from roost.train.data.loader import Loader\nfrom roost.train.data.plans.batch_plan import BatchPlan\n"  # noqa: E501
        "class Set:\n    def __len__(self): return 3\n    def __getitem__(self, i):\n        return {}['a']\n"
        "def f():\n    loader = Loader(Set(), plan=BatchPlan(3, 1, shuffle=False), num_workers=2)\n"
        "    next(loader.epochs())\n"
    )
    failure = of(tmp_path, code)
    assert re.match(r"KeyError: 'a'; .*sample 0 .*Set .*worker 0", failure.error)
    assert failure.lines[1:3] == ("  net.py:6 in __getitem__", "    return {}['a']")
    last, note = failure.lines[3:]
    assert re.fullmatch(r"KeyError .*worker 0.*: 'a'", last) and "sample 0 " in note
    messages.check(f"{failure.error}\n{last}\n{note}")
    assert re.search(
        r"roost\.base\.exception_record\.RemoteTraceback: .*worker 0.*\nTraceback", failure.full_traceback
    )


# --- mistakes: one line -----------------------------------------------------------------------------------


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    error = ConfigError("is wrong", setting="a.b", received="\x1b[2J", fix="do it")
    failure = explain(error, own=[tmp_path])
    assert (failure.reason, failure.exit_code, failure.is_complete) == ("error", 4, True)
    assert failure.lines == (f"error: {error}",) and failure.error == str(error), "repr has made it visible"


def test_a_mistake_in_a_line_of_the_project_names_the_line(tmp_path: Path) -> None:
    failure = of(
        tmp_path,
        "import roost, torch\nclass R(roost.Runner):\n"
        "    def build(self):\n        self.loss = torch.nn.MSELoss()\n"
        "def f():\n    R().build()\n",
    )
    assert failure.lines[2:4] == ("  net.py:4 in build", "    self.loss = torch.nn.MSELoss()")
    assert failure.lines[-1].startswith("error: self.loss ") and failure.is_complete
    assert not any("Traceback" in line for line in failure.lines)


def test_what_the_project_refuses_on_purpose_shows_no_code(tmp_path: Path) -> None:
    failure = of(tmp_path, "import roost\ndef f():\n    raise roost.RoostError('no data')\n")
    assert failure.lines == ("error: no data",)


def test_a_file_of_roosts_own(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "progress").mkdir()
    error = caught(lambda: live_progress.reset(tmp_path / "progress"))
    failure = explain(error, own=[tmp_path])
    assert failure.reason == "error" and str(tmp_path / "progress") in failure.error
    assert failure.lines[0].endswith("then type the same command again")
    messages.check(failure.lines[0])


def test_a_file_of_the_projects_is_none_of_roosts(tmp_path: Path) -> None:
    failure = of(tmp_path, "def f():\n    open('/nowhere/at/all')\n")
    assert failure.reason == "exception" and failure.error.startswith("FileNotFoundError: [Errno 2]")


@pytest.mark.parametrize(
    ("code", "said", "exit_code"),
    [("0", "sys.exit(0)", 1), ("", "sys.exit()", 1), ("75", "sys.exit(75)", 1), ("3", "sys.exit(3)", 3)],
)
def test_an_exit(tmp_path: Path, code: str, said: str, exit_code: int) -> None:
    failure = of(tmp_path, f"import sys\ndef f():\n    sys.exit({code})\n")
    assert (failure.reason, failure.exit_code) == ("exit", exit_code)
    assert failure.lines[0].startswith("error: ") and f" {said} " in failure.lines[0]
    assert failure.lines[2] == "  net.py:3 in f" and not failure.is_complete


# --- telling ----------------------------------------------------------------------------------------------


def tell(folder: Path, code: str) -> FailureReport:
    return failure_report.report(
        caught(module(folder, code).f), own=[folder], package=None, file=folder / "1.traceback.txt"
    )


FAILS = "def f():\n    raise ValueError('one\\ntwo\\x1b[2J\\udc80')\n"


def test_the_rest_is_in_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failure = tell(tmp_path, FAILS)
    file = tmp_path / "1.traceback.txt"
    said = capfd.readouterr().err
    *lines, last = said.splitlines()
    assert tuple(lines) == failure.lines and last.endswith(f": {file}")
    assert file.read_text() == failure.full_traceback + "\n"
    assert failure.full_traceback.endswith("ValueError: one\ntwo\\x1b[2J\\udc80")


def test_debug_prints_it_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_DEBUG", "1")
    failure = tell(tmp_path, FAILS)
    assert capfd.readouterr().err.startswith(f"{failure.full_traceback}\n{HEAD}")
    monkeypatch.undo()


@pytest.mark.parametrize("operation", ["open", "write", "fsync", "rename"])
def test_a_full_disk_does_not_hide_the_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    def full(what: str, path: str) -> None:
        if what == operation:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(durable, "fault", full)
    failure = tell(tmp_path, FAILS)
    said = capfd.readouterr().err
    assert said == "\n".join([failure.full_traceback, *failure.lines, ""]), "then the output has all of it"
    assert not (tmp_path / "1.traceback.txt").exists() and failure.error == "ValueError: one"


def test_a_folder_that_is_gone_hides_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    error = caught(module(tmp_path, FAILS).f)
    failure_report.report(error, own=[tmp_path], package=tmp_path / "gone", file=tmp_path / "gone" / "1.txt")
    assert "ValueError: one" in capfd.readouterr().err


def test_a_mistake_leaves_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failure_report.report(ContractError("no"), own=[tmp_path], package=None, file=tmp_path / "x.txt")
    assert capfd.readouterr().err == "error: no\n" and list(tmp_path.iterdir()) == []


def test_an_error_of_the_explanation_hides_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(failure_report.cause_table, "find", defect)
    try:
        module(tmp_path, FAILS).f()
    except ValueError as error:
        failure = failure_report.report(error, own=[tmp_path], package=None, file=tmp_path / "x.txt")
    assert (failure.reason, failure.error, failure.exit_code) == ("exception", "ValueError", 1)
    said = capfd.readouterr().err
    assert "a defect of ours" in said and "ValueError: one" in said


def test_a_traceback_as_large_as_a_book_is_cut(tmp_path: Path) -> None:
    failure = explain(ValueError("x" * 20_000_000), own=[])
    failure_report.print_failure(failure, tmp_path / "x.txt")
    assert (tmp_path / "x.txt").stat().st_size == 16 * 2**20 + 1


def test_without_memory(tmp_path: Path) -> None:
    failure = of(tmp_path, "def f():\n    bytearray(10**17)\n")
    assert "GiB" in failure.error and failure.lines[0] == f"error: {failure.error}"
    assert failure.lines[-1] == "MemoryError"


@pytest.mark.parametrize(("fix", "lines"), [(None, 2), ("write it", 1)])
def test_a_mistake_that_says_its_fix_is_one_line(tmp_path: Path, fix: str | None, lines: int) -> None:
    error = ConfigError("is not there", setting="weights", fix=fix)
    error.__cause__ = ModuleNotFoundError("No module named 'cv2'", name="cv2")
    assert len(explain(error, own=[tmp_path]).lines) == lines


DistBackendError = type("DistBackendError", (RuntimeError,), {})  # torch's name
GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] "


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PeerLost("rank 1 has failed in its step"), "peer"),
        (RuntimeError(GLOO + "Connection closed by peer [127.0.0.1]:43017"), "peer"),
        (RuntimeError(GLOO + "Read error [127.0.0.1]:43017: Connection reset by peer"), "peer"),
        (RuntimeError("[gloo/transport/tcp/buffer.cc:72] Timed out waiting 100ms for recv"), "peer"),
        (DistBackendError("NCCL error: remote process exited or there was a network error"), "peer"),
        (DistBackendError("Duplicate GPU detected"), "exception"),
        (RuntimeError(GLOO + "op.preamble.length <= op.nbytes. 8 vs 4"), "exception"),
        (RuntimeError("Connection closed by peer"), "exception"),  # of the project's own database
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "exception"),
    ],
)
def test_what_only_says_that_another_rank_is_gone(tmp_path: Path, error: Exception, reason: str) -> None:
    found = explain(error, own=[tmp_path])
    assert found.reason == reason
    if reason == "peer":
        assert found.exit_code == 1 and found.is_complete
        assert found.lines == (), "the supervisor says it, where there is no other cause"
        assert "rank" in found.error
        assert "gloo" not in found.error and "127.0.0.1" not in found.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB.')", "oom_gpu"),
        ("RuntimeError('CUDA error: out of memory')", "oom_gpu"),
        ("MemoryError()", "exception"),
    ],
)
def test_a_gpu_without_memory_has_a_reason_of_its_own(tmp_path: Path, error: str, reason: str) -> None:
    assert of(tmp_path, f"import torch\ndef f():\n    raise {error}\n").reason == reason
