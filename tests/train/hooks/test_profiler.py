from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base import durable
from roost.train.hook import Hook
from roost.train.hooks import Profile
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import MLP, Crash, CrashAt, Points, Still, StopAt, bits, built, plain, weights


@pytest.fixture(autouse=True)
def no_fault() -> Iterator[None]:
    yield
    durable.fault = None


def steps_of(folder: Path) -> list[str]:
    """The steps that are marked in the trace."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return sorted(
        {e["name"] for e in events if str(e.get("name")).startswith("step ") and e.get("ph") == "X"}
    )


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_the_window_is_traced_and_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "profile" / "1"
    plain(built(MLP), Still(), [Profile(folder, start_step=2, steps=3)], until=8).fit()
    assert files(folder) == ["table.txt", "trace.json"]
    assert steps_of(folder) == ["step 3", "step 4", "step 5"]
    table = (folder / "table.txt").read_text()
    assert "Self CPU" in table and "# of Calls" in table and "aten::addmm" in table
    [line] = [line for line in capsys.readouterr().out.splitlines() if "profile" in line]
    assert "steps 3 to 5" in line and str(folder / "trace.json") in line
    assert line.count("%") == 3 and line.count("::") >= 3  # one of autograd has it twice


def test_libkineto_is_silent(tmp_path: Path) -> None:
    """In a process of its own: libkineto reads how much to say when it first starts."""
    lines = (
        "from pathlib import Path",
        "from roost.train.hooks import Profile",
        "from tests.train.parts import MLP, Still, built, plain",
        f"profile = Profile(Path({str(tmp_path)!r}), start_step=1, steps=2)",
        "plain(built(MLP), Still(), [profile], until=5).fit()",
    )
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert "steps 2 to 3" in found.stdout and found.stderr == ""


@pytest.mark.parametrize("memory", [False, True])
def test_training_is_the_same_with_and_without_it(memory: bool, tmp_path: Path) -> None:
    made = []
    for hooks in ([], [Profile(tmp_path, start_step=1, steps=4, memory=memory, stacks=memory)]):
        runner = built(MLP)
        stepper = Stepper(torch.optim.AdamW(runner.parameters(), lr=0.1))
        trainer = plain(runner, Points(), hooks, until=8, stepper=stepper)
        trainer.fit()
        made.append(
            (weights(runner), bits(stepper.state_dict()), bits(trainer.parts()["rank-0"].state_dict()))
        )
    assert made[0] == made[1]


def test_a_session_that_is_too_short_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    plain(built(MLP), Still(), [Profile(tmp_path / "p", start_step=3)], until=3).fit()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "profile.start_step" in line]
    assert line.startswith("no profile: ") and "3 steps" in line
    messages.check(line)
    assert files(tmp_path / "p") == []


@pytest.mark.parametrize("end", [StopAt(4), CrashAt(4)])
def test_a_session_that_ends_inside_the_window(
    end: Hook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = plain(built(MLP), Still(), [Profile(tmp_path / "p", start_step=2, steps=5), end], until=9)
    if isinstance(end, CrashAt):
        with pytest.raises(Crash):
            trainer.fit()
    else:
        trainer.fit()
    assert steps_of(tmp_path / "p") == ["step 3", "step 4"]
    out = capsys.readouterr().out
    assert "steps 3 to 4" in out and "2 of 5" in out


def test_a_window_that_ends_with_the_run_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain(built(MLP), Still(), [Profile(tmp_path / "p", start_step=0, steps=3)], until=3).fit()
    out = capsys.readouterr().out
    assert "steps 1 to 3" in out and " of 3" not in out
    assert steps_of(tmp_path / "p") == ["step 1", "step 2", "step 3"]


def test_a_profiler_that_fails_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Torch has one at a time: a second one would end that of the user."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        hook = Profile(tmp_path / "p", start_step=1, steps=2)
        assert plain(built(MLP), Still(), [hook], until=6).fit() == "finished"
    assert capsys.readouterr().out.count("no profile: RuntimeError: ") == 1
    assert {event.key: event.count for event in theirs.key_averages()}["aten::addmm"] == 12


def test_a_trace_that_torch_could_not_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As on a full disk: it prints that, and goes on."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Fills(Hook):
        def before_step(self, trainer: Any) -> None:
            soft = 1 if trainer.progress.step == 2 else limits[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, limits[1]))

    hooks: list[Hook] = [Fills(), Profile(tmp_path / "p", start_step=1, steps=1)]
    try:
        assert plain(built(MLP), Still(), hooks, until=6).fit() == "finished"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().out.count("no profile: ") == 1
    assert files(tmp_path / "p") == []


def test_a_full_disk_is_said_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("trace.json"):
            raise OSError(errno.ENOSPC, "No space left on device")

    durable.fault = fail
    hook: Any = Profile(tmp_path / "p", start_step=1, steps=1)
    assert plain(built(MLP), Still(), [hook], until=6).fit() == "finished"
    assert capsys.readouterr().out.count("no profile: OSError: ") == 1
    assert files(tmp_path / "p") == [], "nor is half a trace left"
