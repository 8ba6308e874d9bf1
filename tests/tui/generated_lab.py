"""A lab of generated tasks and cards, as the stream of a server would describe it."""

from __future__ import annotations

import math
import random
from typing import Any

from roost.operations.devices.device_list import (
    CardStatus,
    DeviceList,
    ForeignProcess,
    HostStatus,
    LeaseOnCard,
    TaskOnCard,
)
from roost.operations.live_lab.lab_change import (
    CardReading,
    CardSamples,
    CardsChange,
    ExpectedStarts,
    HostReading,
    JournalLines,
    LabChange,
    LabSummary,
    PendingOrder,
    SweepChange,
    TaskFields,
    TaskMetrics,
    TaskProgress,
    TaskRowChange,
)
from roost.operations.task_results import TaskRow

NOW = 1_795_160_000.0
"""The time of the generated lab; tests set the clock of the client to it."""
_LETTERS = {"train": "T", "analyze": "A", "command": "C", "predict": "P"}
_MEMORY_MB = 81_920


def task_row(number: int, name: str, state: str, **more: Any) -> TaskRow:
    """A row with plain values for all fields that are not given."""
    kind = more.pop("kind", "train")
    is_begun = state != "pending"
    given: dict[str, Any] = {
        "id": f"{number:08x}{number * 7919 % 65536:04x}", "short": f"{number:08x}"[-4:],
        "label": f"{_LETTERS[kind]}_{number}", "name": name, "kind": kind,
        "package": f"/projects/digits/runs/{name}", "session_folder": "", "user": "ada", "state": state,
        "reason": "", "priority": 0, "held": False, "after": (), "after_any": (), "sweep": None,
        "sweep_name": None, "num_cards": 1, "cores": None, "host_memory_mb": None, "memory_mb": 16_384,
        "whole": False, "time_limit": None, "opportunistic": False, "cards": (), "attempt": 1, "session": 1,
        "stop_asked": "", "submitted": NOW - 4000 + number, "begin": None,
        "started": NOW - 3600 + 10 * number if is_begun else None,
        "ended": NOW - 60 * number if state in ("succeeded", "failed", "stopped", "crashed") else None,
        "exit_code": None,
    }  # fmt: skip
    known = {name: value for name, value in given.items() if name in TaskRow.__struct_fields__}
    return TaskRow(**{**known, **more})


def progress(row: TaskRow, fraction: float) -> TaskProgress:
    """The progress of a training of 10,000 steps."""
    return TaskProgress(
        id=row.id, step=int(10_000 * fraction), total_steps=10_000, epoch=int(10 * fraction),
        fraction=fraction,
        left=3600 * (1 - fraction) + 5, samples_per_second=1234.5, phase="training",
    )  # fmt: skip


def metrics(row: TaskRow, seed: int, points: int = 100, until: float = 1.0) -> TaskMetrics:
    """Losses that fall and an accuracy that rises."""
    draw = random.Random(seed)
    steps = [int(10_000 * until * (number + 1) / points) for number in range(points)]
    rate = 0.6 + 0.8 * draw.random()
    train = [2.3 * math.exp(-rate * step / 2500) + 0.08 + 0.05 * draw.random() for step in steps]
    valid = [value * 1.1 + 0.06 * draw.random() for value in train]
    accuracy = [max(0.1, 1 - 0.38 * value) for value in valid]
    return TaskMetrics(
        id=row.id,
        points={
            "train/loss": list(zip(steps, train, strict=True)),
            "valid/loss": list(zip(steps[9::10], valid[9::10], strict=True)),
            "valid/accuracy": list(zip(steps[9::10], accuracy[9::10], strict=True)),
        },
    )


def card(number: int, tasks: list[tuple[TaskRow, int | None]], used_mb: int, **more: Any) -> CardStatus:
    """A card of 80 GB."""
    given: dict[str, Any] = {
        "number": number, "id": f"GPU-{number}f1d0000", "name": "NVIDIA H100 80GB HBM3",
        "total_mb": _MEMORY_MB,
        "free_mb": _MEMORY_MB - used_mb, "utilization": 0, "temperature": 61, "power": 402.0, "trouble": "",
        "part_of": "", "exclusive": False, "allowed": True, "drained": False, "windows": [],
        "tasks": [TaskOnCard(row.id, row.name, row.state, mb, row.short) for row, mb in tasks],
        "leases": [], "processes": [],
    }  # fmt: skip
    return CardStatus(**{**given, **more})


def small_lab() -> list[LabChange]:
    """Four cards, trainings, a sweep, a queue, an analyzer, and tasks that ended in all ways."""
    cards = [f"GPU-{number}f1d0000" for number in range(4)]
    running = [
        task_row(12, "resnet50-imagenet", "running", cards=(cards[0],), memory_mb=41_000),
        task_row(
            13,
            "vit-b16-augreg",
            "running",
            cards=(cards[1], cards[2]),
            num_cards=2,
            memory_mb=None,
            whole=True,
        ),
        task_row(15, "unet-cells-2d", "running", cards=(cards[0],), memory_mb=22_000),
    ]
    sweep = [
        task_row(20 + number, f"digits_lr-{rate}", state, sweep="5eed0001", sweep_name="digits",
                 cards=(cards[3],) if state == "running" else (), exit_code=1 if state == "failed" else None,
                 reason="loss is nan at step 310" if state == "failed" else "",
                 ended=NOW - 100 * number if state in ("succeeded", "failed") else None)
        for number, (rate, state) in enumerate([
            ("1e-1", "failed"), ("3e-2", "succeeded"), ("1e-2", "succeeded"), ("3e-3", "succeeded"),
            ("1e-3", "running"), ("3e-4", "running"), ("1e-4", "pending"), ("3e-5", "pending"),
        ])
    ]  # fmt: skip
    waiting = [
        task_row(30, "gpt-small-wiki", "pending", num_cards=4, memory_mb=None, whole=True,
                 reason="needs 4 whole cards, 0 are free"),
        task_row(31, "resnet101-imagenet", "pending", reason="needs 41 GB, GPU 3 has 22.4 GB free"),
        task_row(32, "ablation-no-mixup", "pending", held=True, reason="held: until it is released"),
    ]  # fmt: skip
    analyzer = task_row(
        14, "resnet50-imagenet/analyzers/3", "running", kind="analyze", num_cards=0, memory_mb=None
    )
    ended = [
        task_row(8, "baseline", "succeeded"),
        task_row(9, "lr-too-high", "failed", reason="loss is nan at step 1,204", exit_code=1),
        task_row(10, "long-night", "stopped", reason="stopped by ada"),
        task_row(11, "驱动-测试", "crashed", reason="its process was killed (out of memory)"),
    ]
    rows = [*running, *sweep, *waiting, analyzer, *ended]
    statuses = [
        card(0, [(running[0], 41_000), (running[2], 22_000)], 66_100,
             processes=[ForeignProcess(4711, "bob", 2_900)]),
        card(1, [(running[1], None)], 71_300, temperature=84, power=689.0),
        card(2, [(running[1], None)], 71_280, temperature=79, power=671.0),
        card(3, [(one, 9_000) for one in sweep if one.state == "running"], 21_500,
             leases=[LeaseOnCard("carol", 991, 8_000, NOW - 300, "", "")], drained=True),
    ]  # fmt: skip
    host = HostStatus(cores=64, cores_given=12, busy_cores=21.5, memory_mb=None, memory_given_mb=0,
                      memory_used_mb=211_000, total_memory_mb=515_000)  # fmt: skip
    changes: list[LabChange] = [TaskRowChange(row) for row in rows]
    changes.append(SweepChange("5eed0001", "5eed", len(sweep)))
    pending = [row for row in rows if row.state == "pending" and not row.held]
    changes.append(PendingOrder(ids=tuple(row.id for row in pending)))
    changes.append(ExpectedStarts(times={row.id: NOW + 700 * (n + 1) for n, row in enumerate(pending)}))
    for row in rows:
        if row.kind != "train" or row.state == "pending":
            continue
        part = 0.15 + (sum(row.name.encode()) % 70) / 100 if row.state == "running" else 1.0
        if row.state == "running":
            changes.append(progress(row, part))
        changes.append(metrics(row, sum(row.name.encode()), until=part))
        changes.append(TaskFields(
            id=row.id, metrics={},
            settings={"optimizers.main.lr": [0.001 * (1 + len(row.name))], "max_epochs": [10], "seed": [0],
                      "checkpoint.best.monitor": ["valid/accuracy"], "data.batch_size": [64]},
        ))  # fmt: skip
    changes.append(CardsChange(DeviceList(statuses, None, "avoid", 1638, 64, host)))
    changes += samples(cards)
    changes.append(LabSummary(daemon=100, counts={"running": 6, "pending": 5, "failed": 2, "succeeded": 4}))
    changes.append(JournalLines(lines=[
        "2026-11-20 14:02:11 POST /api/v1/runs: queued T_31 resnet101-imagenet",
        "2026-11-20 14:03:40 POST /api/v1/tasks/T_32/hold: held",
        "2026-11-20 14:05:02 POST /api/v1/runs/8f0c/analyze: queued A_14",
    ]))  # fmt: skip
    return changes


def samples(cards: list[str], count: int = 120) -> list[LabChange]:
    """Two minutes of samples."""
    draw = random.Random(7)
    found: list[LabChange] = []
    for second in range(count):
        wave = [
            88 + 8 * math.sin(second / 9),
            97.0,
            95 - 30 * (second % 40 < 3),
            40 + 35 * math.sin(second / 14),
        ]
        found.append(CardSamples(
            at=NOW - count + second,
            cards=[
                CardReading(id=card, utilization=max(0.0, min(100.0, wave[number % 4] + 4 * draw.random())),
                           memory_mb=None, power=None, temperature=None)
                for number, card in enumerate(cards)
            ],
            host=HostReading(
                cpu=30 + 12 * math.sin(second / 11) + 3 * draw.random(), memory_mb=211_000, load=21.5
            ),
        ))  # fmt: skip
    return found


def busy_lab(count: int) -> list[LabChange]:
    """Many running tasks."""
    rows = [task_row(number, f"run-{number:04}", "running", num_cards=0) for number in range(1, count + 1)]
    changes: list[LabChange] = [TaskRowChange(row) for row in rows]
    changes += [progress(row, (number % 100) / 100) for number, row in enumerate(rows)]
    changes += [metrics(row, number, points=40) for number, row in enumerate(rows)]
    changes.append(LabSummary(daemon=100, counts={"running": count}))
    return changes
