"""What the server takes for lists and curves, beside MLflow's store and TensorBoard's reader.

    python bench/server.py [--rounds 15] [--runs 10000] [--rows 1000000] [--no-peers]

1. ``--runs`` finished packages with realistic settings and ten rows each: `GET /api/v1/runs`, the newest
   hundred; the best hundred of what a query on a setting and a metric means; `roost ls` with that query.
   The first time (nothing is known of them), and then. Beside MLflow's tracking store (SQLite, filled with
   the same runs, asked in this process without HTTP): it compares no numbers in parameters, so it is asked
   for the metric alone.
2. A package with ``--rows`` rows of two values: one curve at 1,000 pixels, exact. Wholly cold (nothing in
   the cache), from the cache, and after a thousand more rows. Beside the fold in Python (`records.fold`),
   MLflow's sample of the history, and TensorBoard's reader and its data server, which keep a sample of
   10,000 points.
3. The server's memory before and after all of that, and its processor time while nothing happens.

Medians, wall clock, over the unix socket; the files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from roost.operations.reading.search_fields import flatten
from roost.package import records
from roost.package.live_progress import ProgressFile
from roost.serve import server_control
from roost.serve.routes import served_packages

ROOST = str(Path(sys.executable).with_name("roost"))
ASKED = "optimizers.main.lr<1e-3 valid/accuracy>=0.9 sort:-valid/accuracy"
METRIC = "train/loss"
PIXELS = 1000
IDLE_SECONDS = 20.0


def settings(number: int, draw: random.Random) -> dict[str, Any]:
    """As a project of three config files has them."""
    return {
        "runner": "Model/Runner.py:Runner",
        "dataset": "Dataset/Dataset.py:Dataset",
        "save_root": "runs",
        "seed": number % 5,
        "threads": 2,
        "max_epochs": 30,
        "precision": draw.choice(["32", "bf16"]),
        "gradient_accumulation_steps": 1,
        "validate_every": "1ep",
        "log_every": "10/ep",
        "test_at_end": "best",
        "model": {
            "name": draw.choice(["resnet18", "resnet50", "vit_s"]),
            "width": draw.choice([64, 128, 256]), "depth": 12, "dropout": round(draw.random() / 2, 3),
            "norm": {"class": "torch.nn.LayerNorm", "eps": 1e-5}, "activation": "gelu",
            "heads": [{"classes": 10, "weight": 1.0}, {"classes": 100, "weight": 0.3}],
        },
        "data": {
            "batch_size": draw.choice([64, 128, 256]), "num_workers": 4, "root": "/data/sets/digits",
            "augment": {"crop": 28, "flip": True, "colour": [0.4, 0.4, 0.4, 0.1]},
            "valid": {"batch_size": 256}, "sampling": {"plan": "shuffled", "drop_last": False},
        },
        "optimizers": {
            "main": {
                "class": "torch.optim.AdamW", "lr": 10 ** draw.uniform(-4, -2), "weight_decay": 0.01,
                "betas": [0.9, 0.999], "params": "*", "max_grad_norm": 1.0,
                "scheduler": {
                    "class": "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max": "${total_steps}",
                    "unit": "step", "warmup_steps": 100,
                },
            }
        },
        "checkpoint": {
            "every": "1ep", "fast": 2, "slow": 0, "held": 1,
            "best": [{"monitor": "valid/accuracy", "mode": "max", "top_k": 1}],
        },
        "early_stopping": {"monitor": "valid/loss", "mode": "min", "patience": 3, "min_delta": 0.0},
    }  # fmt: skip


def make_package(root: Path, number: int, rows: Iterator[str]) -> Path:
    """A finished run, as its files; not synced, so that ten thousand take seconds."""
    draw = random.Random(number)
    path = root / f"run-{number:05d}"
    for name in ("sessions", "records", "Checkpoints"):
        (path / name).mkdir(parents=True)
    here = {"host": socket.gethostname(), "boot_id": "0", "pid": 1, "start_ticks": 1}
    began = 1_780_000_000.0 + number * 60
    files = {
        "request.json": {"format": 1, "kind": "train", "description": draw.choice(["digits", "letters"])},
        "args.json": settings(number, draw),
        "provenance.json": {},
        "manifest.json": {"files": {}, "links": {}, "left_out": []},
        "sessions/1.request.json": {**here, "kind": "train", "overrides": []},
        "sessions/1.json": {**here, "state": draw.choice(["succeeded"] * 9 + ["failed"]), "exit_code": 0,
                            "started": began, "ended": began + 50, "seconds": 50.0},
    }  # fmt: skip
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    ProgressFile(path / "progress").publish(30, 3, 0, 1, 30, 10, 120, 1.0, 100.0, 1.0)
    with (path / "records" / "1.jsonl").open("w") as file:
        file.write('{"session":1,"start_step":0,"time":1.0}\n')
        file.writelines(rows)
    return path


def few_rows(number: int) -> Iterator[str]:
    draw = random.Random(-number)
    for step in range(1, 11):
        values = {"train/loss": draw.random(), "valid/loss": draw.random(), "valid/accuracy": draw.random()}
        yield json.dumps({"step": step, "epoch": 0, "time": 1.78e9 + step, **values}) + "\n"


def many_rows(first: int, count: int) -> Iterator[str]:
    draw = random.Random(first)
    for step in range(first, first + count):
        loss, rate = math.exp(-step / 3e5) + draw.gauss(0, 0.02), 1e-3 * math.cos(step / 1e6)
        values = f'"time":{1.78e9 + step / 100!r},"train/loss":{loss!r},"lr":{rate!r}'
        yield f'{{"step":{step},"epoch":0,{values}}}\n'


@contextmanager
def laboratory() -> Iterator[Path]:
    """A folder of its own for everything; its server ends with it."""
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {
            "ROOST_STATE": f"{name}/state", "ROOST_LEASES": f"{name}/leases", "ROOST_DEVICES": "cpu",
            "XDG_CACHE_HOME": f"{name}/cache", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        yield Path(name)


def seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


class Asking:
    """A server over a folder, asked through its socket."""

    def __init__(self, root: Path) -> None:
        self.about = server_control.start(0, [root])
        socket_path = Path(os.environ["ROOST_STATE"]) / "lab" / "server.sock"
        transport = httpx.HTTPTransport(uds=str(socket_path))
        self._client = httpx.Client(transport=transport, base_url="http://roost/api/v1", timeout=600)

    def get(self, path: str, **query: Any) -> Any:
        found = self._client.get(path, params=query)
        assert found.status_code == 200, found.text
        return found.json()

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.about.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.about.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._client.close()
        server_control.stop()


def table(title: str, once: dict[str, float], cases: dict[str, Callable[[], object]], rounds: int) -> None:
    """Each case in turn; the ratio is to the first of them."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(seconds(case))
    base = statistics.median(next(iter(found.values())))
    print(f"| {title} | median ms | min … max | × |\n|---|---|---|---|")
    for name, value in once.items():
        print(f"| {name} | {value * 1e3:.0f} | once | {value / base:.1f} |")
    for name, values in found.items():
        middle = statistics.median(values)
        spread = f"{min(values) * 1e3:.1f} … {max(values) * 1e3:.1f}"
        print(f"| {name} | {middle * 1e3:.1f} | {spread} | {middle / base:.1f} |")
    print(flush=True)


def mlflow_store(folder: Path, runs: int, rows: Iterator[str]) -> Any:
    """MLflow's store with the same runs, and one more with the long curve. Filled below its interface, which
    takes 20 ms a run."""
    import sqlite3

    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    file = folder / "mlflow.db"
    store = SqlAlchemyStore(f"sqlite:///{file}", str(folder / "artifacts"))
    one = store.create_run("0", "me", 1, [], "one").info.run_id
    database = sqlite3.connect(file)
    names = [row[1] for row in database.execute("PRAGMA table_info(runs)")]
    sample = dict(zip(names, database.execute("SELECT * FROM runs").fetchone(), strict=True))
    into_runs = f"INSERT INTO runs ({','.join(names)}) VALUES ({','.join(':' + name for name in names)})"
    into = "INSERT INTO {} (key,value,timestamp,step,is_nan,run_uuid) VALUES (?,?,?,?,0,?)"
    for number in range(runs):
        id = f"{number:032x}"
        told = {"run_uuid": id, "name": f"run-{number:05d}", "status": "FINISHED", "start_time": number}
        database.execute(into_runs, {**sample, **told})
        given = dict(flatten(settings(number, random.Random(number))))
        params = [(key, str(value), id) for key, value in given.items()]
        database.executemany("INSERT INTO params (key,value,run_uuid) VALUES (?,?,?)", params)
        for row in map(json.loads, few_rows(number)):
            values = [(key, value, 1, row["step"], id) for key, value in row.items() if "/" in key]
            database.executemany(into.format("metrics"), values)
        database.executemany(into.format("latest_metrics"), values)
    curve = ((METRIC, json.loads(row)[METRIC], at, at, one) for at, row in enumerate(rows))
    database.executemany(into.format("metrics"), curve)
    database.commit()
    database.close()
    return store, one


def event_file(folder: Path, rows: Iterator[str]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir()
    with (folder / "events.out.tfevents.1.here.1.0").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(file_version="brain.Event:2", wall_time=1.0).SerializeToString())
        for row in map(json.loads, rows):
            summary = Summary(value=[Summary.Value(tag=METRIC, simple_value=row[METRIC])])
            writer.write(Event(step=row["step"], wall_time=row["time"], summary=summary).SerializeToString())


def read_events(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), {"scalars": 10_000})
    found.Reload()
    assert len(found.Scalars(METRIC)) <= 10_000


def data_server(folder: Path) -> Callable[[int], list[Any]]:
    """TensorBoard's data server over a folder; gives what asks it for points, of its sample."""
    from tensorboard.context import RequestContext
    from tensorboard.data import server_ingester
    from tensorboard.data.provider import RunTagFilter
    from tensorboard.util.grpc_util import ChannelCredsType

    server = server_ingester.SubprocessServerDataIngester(
        server_binary=server_ingester.get_server_binary(),
        logdir=str(folder),
        reload_interval=0,
        channel_creds_type=ChannelCredsType.LOCAL,
        samples_per_plugin={"scalars": 10_000},
    )
    server.start()

    def points(most: int) -> list[Any]:
        meant = RunTagFilter(runs=["."], tags=[METRIC])
        found = server.data_provider.read_scalars(
            RequestContext(), experiment_id="", plugin_name="scalars", downsample=most, run_tag_filter=meant
        )
        return list(found.get(".", {}).get(METRIC, []))

    return points


def loaded(points: Callable[[int], list[Any]], rows: int) -> None:
    """Waits until the data server has read to the last row."""
    while not (found := points(10_000)) or found[-1].step < rows:
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    given = parser.parse_args()
    with laboratory() as folder:
        root = folder / "runs"
        for number in range(given.runs):
            make_package(root, number, few_rows(number))
        long = make_package(folder / "long" / "runs", 0, many_rows(1, given.rows))
        store, one = (
            (None, "") if given.no_peers else mlflow_store(folder, given.runs, many_rows(1, given.rows))
        )
        if store is not None:
            event_file(folder / "events", many_rows(1, given.rows))
        asking = Asking(folder / "runs")
        begun = asking.memory_mb()
        lists(asking, root, store, given.rounds)
        listed = asking.memory_mb()
        asking.close()
        asking = Asking(folder / "long")
        curves(asking, long, store, one, folder / "events", given)
        drawn = asking.memory_mb()
        before = asking.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        idle = (asking.cpu_seconds() - before) / IDLE_SECONDS
        asking.close()
        print(
            f"Memory of the server, MB: begun {begun:.0f}, after lists {listed:.0f}, after curves {drawn:.0f}"
        )
        print(f"Idle: {idle * 1e3:.2f} ms of processor time a second")


def lists(asking: Asking, root: Path, store: Any, rounds: int) -> None:
    once = {
        "list, the first time": seconds(lambda: asking.get("/runs")),
        "query, the first time": seconds(lambda: asking.get("/runs", query=ASKED)),
    }
    command = [ROOST, "ls", str(root), ASKED]
    cases: dict[str, Callable[[], object]] = {
        "list, the newest 100": lambda: asking.get("/runs"),
        "query on a setting and a metric, the best 100": lambda: asking.get("/runs", query=ASKED),
        "query on the metric, the best 100": lambda: asking.get("/runs", query=ASKED.partition(" ")[2]),
        "`roost ls` with the query": lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True),
    }
    if store is not None:
        from mlflow.entities import ViewType

        view, best = ViewType.ACTIVE_ONLY, ["metrics.`valid/accuracy` DESC"]
        wanted = "metrics.`valid/accuracy` >= 0.9"
        cases["MLflow: the newest 100"] = lambda: store.search_runs(["0"], "", view, 100)
        cases["MLflow: query on the metric, the best 100"] = lambda: store.search_runs(
            ["0"], wanted, view, 100, best
        )
    table("lists", once, cases, rounds)


def curves(asking: Asking, long: Path, store: Any, one: str, events: Path, given: argparse.Namespace) -> None:
    path = f"/runs/{served_packages.run_id(long)}/records"
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "roost" / "records"

    def asked() -> None:
        found = asking.get(path, name=METRIC, width=PIXELS)
        assert len(found["curves"][0]["columns"]) == min(PIXELS, given.rows)

    def cold() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        asked()

    once = {
        "the server's first curve": seconds(cold),
        "`records.fold`": seconds(lambda: records.fold(long / "records")),
    }
    if store is not None:
        once["TensorBoard's reader, a sample"] = seconds(lambda: read_events(events))
        began = time.perf_counter()
        points = data_server(events)
        loaded(points, given.rows)
        once["TensorBoard's data server, started, a sample"] = time.perf_counter() - began
    cases: dict[str, Callable[[], object]] = {"from the cache": asked, "wholly cold": cold}
    if store is not None:
        cases["MLflow: a sample of 1,000"] = lambda: store.get_metric_history_bulk_interval_from_steps(
            one, METRIC, list(range(0, given.rows, max(1, given.rows // PIXELS))), PIXELS
        )
        cases["TensorBoard's data server: 1,000 of its sample"] = lambda: points(PIXELS)
    table("a curve", once, cases, max(3, given.rounds // 3))
    with (long / "records" / "1.jsonl").open("a") as file:
        file.writelines(many_rows(given.rows + 1, 1000))
    table("a curve, grown", {}, {"after 1,000 more rows": asked}, given.rounds)


if __name__ == "__main__":
    main()
