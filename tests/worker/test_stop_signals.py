from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from roost.worker.stop_signals import StopSignals


class Target:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def request_stop(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on(number: signal.Signals, own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    stop.attach(target)
    assert target.reasons == []
    os.kill(os.getpid(), number)
    on_request = number == signal.SIGTERM  # Ctrl-C and `roost stop` come as this one
    assert len(target.reasons) == 1 and target.reasons[0].endswith("request" if on_request else number.name)


def test_one_that_came_while_the_run_was_built_is_not_lost(own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    os.kill(os.getpid(), signal.SIGUSR1)
    stop.attach(target)
    assert len(target.reasons) == 1 and target.reasons[0].endswith("SIGUSR1")


def test_the_first_reason_counts(own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    stop.attach(target)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert len(set(target.reasons)) == 1 and target.reasons[0].endswith("request")


def test_a_process_that_the_project_forks_dies_of_it(own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    stop.attach(target)
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=lambda: (ready.set(), signal.pause()))
    child.start()
    assert ready.wait(10)  # Python forgets a signal that comes while it forks
    child.terminate()
    child.join(10)
    assert child.exitcode == -signal.SIGTERM and target.reasons == []
    child.kill()
