"""Kills of the real program, and resumes that are exact to the bit."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import exact
import pytest

from roost.base.errors import STOPPED_EXIT_CODE
from roost.operations.lifecycle.stop import stop
from roost.package.package import PackageFolder


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the run without interruption."""
    started = exact.start(tmp_path_factory.mktemp("reference"), [])
    assert exact.wait(started) == 0
    return exact.fingerprint(started.package)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1])
def test_killed_at_random_moments_with_changing_workers(
    tmp_path: Path, uninterrupted: Any, seed: int
) -> None:
    chance = random.Random(seed)
    started = exact.start(tmp_path, ["data.num_workers=2"])
    for _ in range(4):
        if not exact.kill_when(started, exact.random_moment(chance)):
            break
        assert PackageFolder.open(started.package).state == "crashed"
        started = exact.go_on(started.package, [f"data.num_workers={chance.choice([0, 2])}"])
    assert exact.wait(started) == 0
    assert exact.fingerprint(started.package) == uninterrupted


@pytest.mark.timeout(300)
def test_killed_in_training_in_a_validation_and_inside_a_save(tmp_path: Path, uninterrupted: Any) -> None:
    started = exact.start(tmp_path, [])
    for phase, step in (("training", 7), ("validating", 11), ("saving", 24)):
        assert exact.kill_when(started, exact.at_phase(phase, step)), f"ended before {phase}"
        started = exact.go_on(started.package, [])
    assert exact.wait(started) == 0
    assert exact.fingerprint(started.package) == uninterrupted


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_stopped_in_training_and_in_a_validation(tmp_path: Path, uninterrupted: Any) -> None:
    started = exact.start(tmp_path, [])
    for phase, step in (("training", 3), ("validating", 11)):
        while not exact.at_phase(phase, step)(started.package, 0.0):
            assert started.process is not None and started.process.poll() is None, f"ended before {phase}"
        list(stop(started.package))
        assert exact.wait(started) == STOPPED_EXIT_CODE
        assert PackageFolder.open(started.package).state == "stopped"
        started = exact.go_on(started.package, [])
    assert exact.wait(started) == 0
    assert exact.fingerprint(started.package) == uninterrupted


@pytest.mark.timeout(120)
def test_a_package_that_was_moved_goes_on(tmp_path: Path, uninterrupted: Any) -> None:
    started = exact.start(tmp_path / "here", [])
    assert exact.kill_when(started, exact.at_phase("training", 20))
    (tmp_path / "there").mkdir()
    moved = started.package.rename(tmp_path / "there" / "moved")
    again = exact.go_on(moved, [])
    assert exact.wait(again) == 0
    assert exact.fingerprint(moved) == uninterrupted


# --- projects of every kind -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[str], str]]:
    """Runs a case (see exact_cases.py) and gives what came out."""
    script = Path(__file__).with_name("exact_cases.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def answer(case: str) -> str:
            print(case, file=stdin, flush=True)
            return stdout.readline().strip()

        yield answer
        process.stdin.close()


CASES = [
    f"{kind} {end} {2 * ((number + late) % 2)}"
    for number, kind in enumerate(exact.KINDS)
    for late, end in enumerate(("kill", "stop"))
]
"""Every pair of a kind, an end and a number of workers is in one of them."""


def test_the_cases_hold_every_pair() -> None:
    split = [case.split() for case in CASES]
    kinds = len(exact.KINDS)
    for a, b, number in ((0, 1, 2 * kinds), (0, 2, 2 * kinds), (1, 2, 4)):
        assert len({(case[a], case[b]) for case in split}) == number


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES)
def test_each_kind_goes_on_exactly(ask: Callable[[str], str], case: str) -> None:
    assert ask(case) == "same"
