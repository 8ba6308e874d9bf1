"""What it costs to look at the lab all day.

    python bench/client.py [--only observer stream terminal] [--running 200] [--pending 1000] [--ended 10000]
        [--peer NAME=COMMAND ...]

observer: milliseconds for the first poll of `LabObserver` (everything) and for each later one, while all
    running tasks publish progress ten times a second and record a row of five metrics every second; CPU time
    per second at ten polls a second; and what a subscriber spends on the changes: decoding and applying them.
stream: the same lab behind a real server: the time until a subscriber has the whole state, its CPU time per
    second while it does nothing but follow, and that of the server with none, one and ten subscribers.
terminal: `roost client` on a pseudo-terminal of 120x40: from its start to the first paint, to its views, to
    the tasks; from a key to its effect while all these tasks change; its CPU time, also with an idle lab.
    The end is a table for docs/benchmarks.md.
peers: `roost client` with an idle lab, a bare Textual app, and each `--peer 'htop=/usr/bin/htop -t'`, started
    in turn: medians of the first paint and of a key (down, up) to the next output, and the mean of the CPU
    time that follows; and the ratios of the client's figures to theirs.

It takes about four minutes, and two for each peer. The latency of scripts is in bench/analyzers.py.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import client_terminal
import msgspec

from roost.api import Client
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import PENDING, RUNNING, SUCCEEDED, Task, new_id
from roost.operations import lab
from roost.operations.live_lab.lab_change import LabChange
from roost.operations.live_lab.lab_observer import POLL_SECONDS, LabObserver
from roost.operations.live_lab.lab_state import LabState
from roost.package.live_progress import ProgressFile
from roost.package.records import RecordsWriter
from roost.serve import server_control

_CARDS, _PER_CARD = 8, 25
_STEP_SECONDS, _STEPS_PER_ROW, _TOTAL_STEPS = 0.1, 10, 100_000
_SETTINGS = {
    "runner": "Model/Runner.py:Runner", "dataset": "Dataset/Dataset.py:Dataset", "seed": 0, "max_epochs": 5,
    "data": {"batch_size": 64, "num_workers": "auto", "valid": {"batch_size": 256}},
    "optimizers": {"main": {"class": "torch.optim.AdamW", "lr": 1e-3, "weight_decay": 0.01, "params": "*"}},
    "checkpoint": {"every": "1ep", "best": [{"monitor": "valid/accuracy", "mode": "max", "top_k": 1}]},
    "model": {"width": 512, "layers": [64, 128, 256, 512], "dropout": 0.1, "activation": "gelu"},
}  # fmt: skip


class Trainings:
    """Running tasks that publish progress and record rows, from one thread."""

    def __init__(self, tasks: list[Task]) -> None:
        self._progress, self._records = [], []
        for task in tasks:
            package = Path(task.package)
            (package / "records").mkdir()
            self._progress.append(ProgressFile(package / "progress"))
            self._records.append(RecordsWriter(package / "records" / "1.jsonl", session=1, start_step=0))
        self._step = 0
        for _ in range(200):
            self.advance()

    def advance(self) -> None:
        """Takes one step in all of them."""
        self._step = step = self._step + 1
        part = step / _TOTAL_STEPS
        for progress in self._progress:
            progress.publish(step, 1, step, 1, _TOTAL_STEPS, 1000, step * 64, step * 0.1, 640.0, part)
        if step % _STEPS_PER_ROW == 0:
            row = {
                "train/loss": 1 / step, "train/lr": 1e-3, "train/grad_norm": 1.0, "valid/loss": 2 / step,
                "valid/accuracy": 1 - 1 / step,
            }  # fmt: skip
            for records in self._records:
                records.row(step, 1, row)


def make_tasks(folder: Path, running: int, pending: int, ended: int) -> list[Task]:
    """Returns the tasks of a lab, whose packages exist unless they have ended."""
    tasks = []
    begin = time.time() - running - pending - ended
    for number in range(ended + running + pending):
        state = SUCCEEDED if number < ended else RUNNING if number < ended + running else PENDING
        at = begin + number
        given: dict[str, Any] = {}
        if state != PENDING:
            given = {"started": at + 1, "attempt": 1, "session": 1}
        if state == SUCCEEDED:
            given |= {"ended": at + 60, "exit_code": 0}
        if state == RUNNING:
            card = f"SIM-{(number - ended) % _CARDS}"
            given |= {"cards": (card,), "reserved_mb": 3000}
        package = folder / f"run_{number:05d}"
        if state != SUCCEEDED:
            (package / "sessions").mkdir(parents=True)
            (package / "request.json").write_text("{}")
            (package / "args.json").write_bytes(msgspec.json.encode({**_SETTINGS, "seed": number}))
        tasks.append(
            Task(
                id=new_id(at), name=package.name, package=str(package), user="ada", state=state,
                submitted=at, need=ResourceRequest(cards=1, memory_mb=3000), plan={}, **given,
            )
        )  # fmt: skip
    return tasks


@contextmanager
def temporary_lab() -> Iterator[Path]:
    """Creates a lab in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        simulated = f"sim:{_CARDS}x80GB"
        os.environ |= {"ROOST_STATE": name, "ROOST_LEASES": f"{name}/leases", "ROOST_DEVICES": simulated}
        yield Path(name)


@contextmanager
def running_lab(running: int, pending: int, ended: int) -> Iterator[Path]:
    """Creates a lab whose running tasks publish progress."""
    with temporary_lab() as folder:
        tasks = make_tasks(folder / "runs", running, pending, ended)
        with lab.open_queue() as store:
            store.restore(tasks)
        trainings, has_ended = Trainings([task for task in tasks if task.state == RUNNING]), threading.Event()

        def train() -> None:
            while not has_ended.wait(_STEP_SECONDS):
                trainings.advance()

        thread = threading.Thread(target=train, daemon=True)
        thread.start()
        try:
            yield folder
        finally:
            has_ended.set()
            thread.join()


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_stream(running: int, pending: int, ended: int, seconds: float) -> None:
    """Prints what a server and its subscribers cost."""
    with running_lab(running, pending, ended):
        server = server_control.start(0, [])
        try:
            _measure_subscribers(server.pid, seconds)
        finally:
            server_control.stop()


def _measure_subscribers(pid: int, seconds: float) -> None:
    has_ended = threading.Event()
    costs: list[float] = []
    firsts: list[float] = []

    def follow() -> None:
        state, begin = LabState(), time.perf_counter()
        with Client() as client, closing(client.follow_lab()) as events:
            state.apply_all(next(events).data)
            firsts.append(time.perf_counter() - begin)
            while any(not task.settings for task in state.all_tasks() if task.row.ended is None):
                state.apply_all(next(events).data)
            cpu_begin, begin = time.thread_time(), time.perf_counter()
            for event in events:
                state.apply_all(event.data)
                if has_ended.is_set():
                    break
            costs.append((time.thread_time() - cpu_begin) / (time.perf_counter() - begin))

    for count in (0, 1, 10):
        has_ended.clear()
        costs.clear()
        firsts.clear()
        threads = [threading.Thread(target=follow) for _ in range(count)]
        for thread in threads:
            thread.start()
        time.sleep(10 if count else 0)  # until all settings have been sent
        begin, cpu_begin = time.perf_counter(), cpu_seconds(pid)
        time.sleep(seconds)
        share = (cpu_seconds(pid) - cpu_begin) / (time.perf_counter() - begin)
        has_ended.set()
        for thread in threads:
            thread.join()
        own = f"; a subscriber {statistics.mean(costs):.2%} of a core" if costs else ""
        first = f"; the whole state after {max(firsts) * 1e3:.0f} ms" if firsts else ""
        print(f"{count} subscribers: the server {share:.2%} of a core{own}{first}")


def measure_terminal(running: int, seconds: float) -> None:
    """Prints a table: when the client paints, how fast keys have an effect, its CPU time."""
    rows = []
    with running_lab(running, 0, 0):
        server_control.start(0, [])
        try:
            first, views, tasks = client_terminal.measure_start(times=5)
            median, most = client_terminal.measure_keys(times=100)
            share, painted = client_terminal.measure_cpu(seconds)
        finally:
            server_control.stop()
    rows.append([f"roost client, {running} running tasks", first, views, tasks, median, most, share, painted])
    with running_lab(0, 1, 0):
        server_control.start(0, [])
        try:
            first, views, tasks = client_terminal.measure_start(times=5)
            share, painted = client_terminal.measure_cpu(seconds)
        finally:
            server_control.stop()
    rows.append(["roost client, idle lab", first, views, tasks, "", "", share, painted])
    _print_table(["", "first paint", "views", "tasks", "key to paint", "95 % within", "CPU", "painted"], rows)


def measure_peers(peers: dict[str, list[str]]) -> None:
    """Prints a table: the client, a bare app, and peers."""
    commands = {
        "roost client": client_terminal.CLIENT,
        "bare Textual app": client_terminal.BARE_TEXTUAL,
        **peers,
    }
    with running_lab(0, 30, 0):
        server_control.start(0, [])
        try:
            found = client_terminal.measure_in_turn(commands, times=5)
        finally:
            server_control.stop()
    own, rows = found["roost client"], []
    assert own is not None
    for name, one in found.items():
        if one is None:
            rows.append([name, "ends at once", *[""] * 5])
            continue
        cells = [f"{one.first * 1e3:.0f} ms", f"{own.first / one.first:.2f}"]
        cells += (
            ["–", ""]
            if one.key is None or own.key is None
            else [f"{one.key * 1e3:.1f} ms", f"{own.key / one.key:.2f}"]
        )
        cells += [f"{one.share:.2%}", f"{own.share / one.share:.2f}" if one.share else ""]
        rows.append([name, *cells])
    _print_table(["", "first paint", "ratio", "key to paint", "ratio", "CPU", "ratio"], rows)


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    print()
    for row in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(row)} |")


def measure_observer(running: int, pending: int, ended: int, polls: int) -> None:
    """Prints what the observer and a subscriber cost."""
    with running_lab(running, pending, ended) as folder:
        observer, state = LabObserver(), LabState()
        try:
            begin, cpu_begin = time.perf_counter(), time.thread_time()
            first = observer.poll()
            first_ms, first_cpu_ms = (
                (time.perf_counter() - begin) * 1e3,
                (time.thread_time() - cpu_begin) * 1e3,
            )
            begin = time.perf_counter()
            encoded = msgspec.json.encode(first)
            print(
                f"first poll: {first_ms:.1f} ms ({first_cpu_ms:.1f} ms of CPU time), {len(first)} changes, "
                f"{len(encoded) / 1e3:.0f} kB, encoded in {(time.perf_counter() - begin) * 1e3:.1f} ms"
            )
            state.apply_all(first)
            _measure_polls(observer, state, store_folder=folder, polls=polls)
            begin = time.thread_time()
            snapshot = state.snapshot()
            encoded = msgspec.json.encode(snapshot)
            encoded_ms = (time.thread_time() - begin) * 1e3
            begin = time.thread_time()
            LabState().apply_all(msgspec.json.decode(encoded, type=list[LabChange]))
            applied_ms = (time.thread_time() - begin) * 1e3
            print(
                f"snapshot for a later subscriber (CPU time): {encoded_ms:.1f} ms, "
                f"{len(encoded) / 1e3:.0f} kB, decoded and applied in {applied_ms:.1f} ms"
            )
        finally:
            observer.close()


def _measure_polls(observer: LabObserver, state: LabState, *, store_folder: Path, polls: int) -> None:
    """Polls at the usual pace until all settings are read, and then so many times more."""
    decoder = msgspec.json.Decoder(list[LabChange])
    while any(not task.settings for task in state.all_tasks() if task.row.state != SUCCEEDED):
        state.apply_all(observer.poll())
        time.sleep(POLL_SECONDS)
    seconds, client_seconds, sizes = [], [], []
    begin = time.perf_counter()
    for _ in range(polls):
        poll_begin = time.thread_time()
        changes = observer.poll()
        seconds.append(time.thread_time() - poll_begin)
        encoded = msgspec.json.encode(changes)
        sizes.append(len(encoded))
        apply_begin = time.thread_time()
        state.apply_all(decoder.decode(encoded))
        client_seconds.append(time.thread_time() - apply_begin)
        time.sleep(POLL_SECONDS)
    wall = time.perf_counter() - begin
    print(
        f"later polls (CPU time): median {statistics.median(seconds) * 1e3:.2f} ms, mean "
        f"{statistics.mean(seconds) * 1e3:.2f} ms, most {max(seconds) * 1e3:.1f} ms; "
        f"{sum(seconds) / wall:.1%} of a core; {sum(sizes) / wall / 1e3:.0f} kB/s"
    )
    print(f"a subscriber decodes and applies them with {sum(client_seconds) / wall:.2%} of a core")
    with QueueStore.open() as store:
        task = store.tasks(states=[PENDING], oldest=1)[0]
        store.change(task.id, priority=1)
    begin = time.perf_counter()
    changes = observer.poll()
    print(f"a poll after one change: {(time.perf_counter() - begin) * 1e3:.1f} ms, {len(changes)} changes")
    state.apply_all(changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts = ["observer", "stream", "terminal", "peers"]
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--running", type=int, default=200)
    parser.add_argument("--pending", type=int, default=1000)
    parser.add_argument("--ended", type=int, default=10_000)
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=COMMAND", help="a program to measure beside it"
    )
    parser.add_argument("--polls", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    if "observer" in given.only:
        measure_observer(given.running, given.pending, given.ended, given.polls)
    if "stream" in given.only:
        measure_stream(given.running, given.pending, given.ended, given.seconds)
    if "terminal" in given.only:
        measure_terminal(given.running, given.seconds)
    if "peers" in given.only:
        measure_peers(
            {name: shlex.split(line) for name, _, line in (one.partition("=") for one in given.peer)}
        )


if __name__ == "__main__":
    main()
