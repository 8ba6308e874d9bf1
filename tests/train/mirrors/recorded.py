"""Records and media for mirrors, and what each kind gives back."""

from __future__ import annotations

import csv
import io
import json
import sys
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roost.package import records
from roost.package.records import RecordsWriter, Row
from roost.train.mirrors import wandb_offline_log
from roost.train.mirrors.sink import SessionEnd, SinkPosition

VALUES = {"train/loss": 0.1, "train/accuracy": 1 / 3, "perf/other_ms": 2.5}


def session(package: Path, number: int, start: int, steps: Sequence[int], **values: float) -> RecordsWriter:
    """Records rows of a session, and gives the writer."""
    (package / "records").mkdir(exist_ok=True)
    writer = RecordsWriter(package / "records" / f"{number}.jsonl", session=number, start_step=start)
    for step in steps:
        writer.row(step, step // 10, {name: value * step for name, value in {**VALUES, **values}.items()})
    return writer


def folded(package: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, values) of each row that counts."""
    return [(row["step"], records.values(row)) for row in records.fold(package / "records").rows]


def by_step(rows: Sequence[tuple[int, Mapping[str, float]]]) -> dict[int, dict[str, float]]:
    """All values of each step; no step may have a name twice."""
    found: dict[int, dict[str, float]] = {}
    for step, values in rows:
        at = found.setdefault(step, {})
        assert at.keys().isdisjoint(values), f"{step} has a value twice"
        at |= values
    return found


class Log:
    """A sink that keeps what it is given in memory, and fails when `error` is set."""

    def __init__(self, *, can_rewind: bool = True, held: SinkPosition | None = None) -> None:
        self.can_rewind = can_rewind
        self.held = held or SinkPosition()
        self.rows: list[Row] = []
        self.media_: list[tuple[int, str]] = []
        self.calls: list[str] = []
        self.connected_with: dict[str, Any] = {}
        self.error: Exception | None = None

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        self.connected_with = dict(state)
        return self.held

    def rewind(self, step: int) -> None:
        self.calls.append(f"back to {step}")
        self.rows = [row for row in self.rows if row["step"] <= step]
        self.media_ = [one for one in self.media_ if one[0] <= step]

    def write_row(self, row: Row) -> None:
        if self.error is not None:
            raise self.error
        self.rows.append(row)

    def write_media(self, step: int, path: Path) -> None:
        self.media_.append((step, path.name))

    def flush(self) -> None:
        self.calls.append("flush")

    def state(self) -> dict[str, Any]:
        return {"run_id": "seven"}

    def close(self, end: SessionEnd | None) -> None:
        self.calls.append(f"close {end}")

    @property
    def steps(self) -> list[int]:
        return [row["step"] for row in self.rows]

    @property
    def values(self) -> list[tuple[int, dict[str, float]]]:
        return [(row["step"], records.values(row)) for row in self.rows]


# ---- media ------------------------------------------------------------------------------------------------


def show(package: Path, step: int, name: str, data: bytes = b"text") -> Path:
    """Writes a file as roost does: by a rename."""
    folder = package / "media" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    staging, path = folder / f".{name}.tmp-0123456789ab", folder / name
    staging.write_bytes(data)
    staging.rename(path)
    return path


def png(width: int = 4, height: int = 3) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (1, 2, 3)).save(buffer, format="PNG")
    return buffer.getvalue()


def wav(frames: int = 80, rate: int = 8000) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"\0\0" * frames)
    return buffer.getvalue()


def matrix() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([[0.0, 1.0], [2.0, 4.0]]))
    return buffer.getvalue()


HISTOGRAM = json.dumps({"counts": [1, 3], "edges": [0.0, 1.0, 2.0]}).encode()


def show_all(package: Path, step: int) -> None:
    """One of each kind; a matrix has its picture beside it."""
    kinds = {"p.png": png(), "s.wav": wav(), "h.json": HISTOGRAM, "t.txt": b"<words>"}
    for name, data in {**kinds, "m.png": png(2, 2), "m.npy": matrix()}.items():
        show(package, step, name, data)


# ---- read back --------------------------------------------------------------------------------------------


def table(path: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, values) of each line of a CSV."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    given = [{name: text for name, text in line.items() if text != ""} for line in lines]
    kept = ("step", "epoch", "time")
    return [
        (int(line["step"]), {name: float(text) for name, text in line.items() if name not in kept})
        for line in given
    ]


def events(folder: Path) -> Any:
    """TensorBoard's own reader, which drops what was taken back."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance=dict.fromkeys(_KINDS, 0), purge_orphaned_data=True)
    found.Reload()
    return found


_KINDS = ("scalars", "images", "audio", "histograms", "tensors")


def scalars(folder: Path) -> dict[int, dict[str, float]]:
    """All values by step; none may be there twice."""
    found = events(folder)
    tags = found.Tags()["scalars"]
    return by_step([(one.step, {tag: one.value}) for tag in tags for one in found.Scalars(tag)])


def narrow(rows: Sequence[tuple[int, Mapping[str, float]]]) -> dict[int, dict[str, float]]:
    """As TensorBoard keeps them: 32 bits."""
    return {
        step: {name: float(np.float32(value)) for name, value in values.items()}
        for step, values in by_step(rows).items()
    }


def keep_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of W&B puts functions of its own here and leaves them; its sys.exit() means sys.exit(0)."""
    monkeypatch.setattr(sys, "exit", sys.exit)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def of_wandb(folder: Path) -> list[dict[str, Any]]:
    """What W&B's files hold, in the order of the sessions, without what wandb adds."""
    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    return [logged for path in files for logged in wandb_offline_log.history(path)]


def logged_values(logged: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """Values by step, of what `of_wandb` gave."""
    return by_step(
        [
            (one["_step"], {name: float(value) for name, value in one.items() if _is_value(name, value)})
            for one in logged
        ]
    )


def _is_value(name: str, value: object) -> bool:
    return name not in ("epoch", "_step", "_runtime", "_timestamp", "_wandb") and not isinstance(value, dict)
