"""Every plan and every stream resumes exactly, whichever process was killed and wherever."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import data_kinds
import pytest

CASES = [pytest.param(case, id=f"{case.kind}-{case.workers}") for case in data_kinds.cases()]
_PROCESSES = 2


@pytest.fixture(scope="module")
def ask(request: pytest.FixtureRequest) -> Iterator[Callable[[data_kinds.Case], str]]:
    """Gives what came out of a case (see exact_data.py), while the next one runs already."""
    chosen = [
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    command = [sys.executable, str(Path(__file__).with_name("exact_data.py"))]
    with ExitStack() as stack:
        processes = []
        for _ in range(_PROCESSES):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))

        def begin(number: int) -> None:
            if number < len(chosen):
                print(json.dumps(chosen[number]), file=processes[number % _PROCESSES].stdin, flush=True)

        def answer(case: data_kinds.Case) -> str:
            number = chosen.index(case)
            stdout = processes[number % _PROCESSES].stdout
            assert stdout is not None
            line = stdout.readline().strip()
            begin(number + _PROCESSES)
            return line

        for number in range(_PROCESSES):
            begin(number)
        yield answer


def test_the_cases_hold_every_pair() -> None:
    kinds, ends, numbers = data_kinds.KINDS, data_kinds.ENDS, (0, 1, 2)
    cases = data_kinds.cases()
    legs = [
        (case.kind, end, before, then)
        for case in cases
        for (_, before), (end, then) in pairwise([("", case.workers), *case.legs])
    ]
    assert {(kind, end) for kind, end, _, _ in legs} == {(kind, end) for kind in kinds for end in ends}
    assert {(kind, number) for kind, _, number, _ in legs} == {(kind, n) for kind in kinds for n in numbers}
    some = {(end, number) for end in ends for number in numbers} - {("worker", 0)}
    assert {(end, number) for kind, end, number, _ in legs if kind not in data_kinds.STREAMS} == some
    assert all(before != then for _, end, before, then in legs if end not in ("after", "worker"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES)
def test_each_kind_goes_on_exactly(ask: Callable[[data_kinds.Case], str], case: data_kinds.Case) -> None:
    answer = ask(case)
    assert answer == "same", answer
