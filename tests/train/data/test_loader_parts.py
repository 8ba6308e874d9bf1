from __future__ import annotations

import multiprocessing
import os
import signal
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from roost.train.data import loader_parts


class Worker(TensorDataset):
    """Gives whether its process ignores Ctrl-C, and the process of its parent."""

    def __getitem__(self, index: int) -> tuple[bool, int]:
        return signal.getsignal(signal.SIGINT) == signal.SIG_IGN, os.getppid()


def test_parts_and_generators_are_found_once() -> None:
    own = torch.Generator()
    data = TensorDataset(torch.arange(4))
    sampler = RandomSampler(data, generator=own)
    loader = DataLoader(data, sampler=sampler, generator=own)
    assert [id(part) for part in loader_parts.parts(loader)][:3] == [id(loader), id(data), id(sampler)]
    assert loader_parts.generators(loader) == [own]
    assert loader_parts.parts([1]) == [[1]] and loader_parts.parts(None) == []


@pytest.mark.parametrize("for_good", [True, False])
def test_workers_ignore_the_signals_of_this_process(for_good: bool) -> None:
    started: list[int] = []
    loader = DataLoader(Worker(torch.arange(2)), num_workers=1, worker_init_fn=started.append)
    if for_good:
        loader_parts.link_worker_processes(loader)
    iterator = iter(loader) if for_good else loader_parts.start_pass(loader)
    ignores, parent = next(iterator)
    assert ignores.item() and parent.item() == os.getpid()
    loader_parts.shut_down(loader, iterator)
    assert (loader.worker_init_fn == started.append) != for_good


def test_persistent_workers_are_ended_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(TensorDataset(torch.arange(2)), num_workers=1, persistent_workers=True)
    loader_parts.disable_persistent_workers(loader, "the set")
    assert not loader.persistent_workers
    assert "the set: persistent_workers is ignored" in capsys.readouterr().out


def noticed_by_torch() -> RuntimeError:
    """As torch raises it when it has noticed the worker's end."""
    error = RuntimeError("DataLoader worker (pid(s) 1) exited unexpectedly")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return error


@pytest.mark.parametrize("broken", [ConnectionResetError(104, "reset"), noticed_by_torch()])
def test_a_connection_that_broke_because_a_worker_was_killed_says_so(broken: Exception) -> None:
    workers = [multiprocessing.get_context("fork").Process(target=signal.pause) for _ in range(2)]
    for worker in workers:
        worker.start()
    iterator = SimpleNamespace(_workers=workers)
    try:
        assert workers[1].pid is not None
        own = RuntimeError("the project's own")
        loader_parts.note_killed_worker(own, iterator)
        assert not hasattr(own, "__notes__")
        os.kill(workers[1].pid, signal.SIGKILL)
        loader_parts.note_killed_worker(broken, iterator)
        assert broken.__notes__ == [f"worker process {workers[1].pid} of the loader was killed by SIGKILL"]
        loader_parts.note_killed_worker(ConnectionResetError(104, "reset"), iter([]))
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
