"""The sink that writes TensorBoard's event files."""

from __future__ import annotations

import io
import json
import os
import socket
import time
import wave
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.histogram_pb2 import HistogramProto
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from roost.base import durable
from roost.package import records
from roost.package.records import Row
from roost.train.mirrors.sink import SessionEnd, SinkPosition
from roost.train.reporting import png

_MAX_BUFFER_BYTES = 1 << 20
"""Bytes kept in memory before they are written."""
_FILE_INFIX = "tfevents"


class TensorBoardSink:
    """Writes one file for each session of the mirror, with one event for all values of a row.

    If the run goes back, a START event names the step, and readers drop the events from that step on.
    TensorBoard's scalars have 32 bits.

    Args:
        folder: The folder of the run below a ``--logdir``; created if needed.
        below: As for `durable.make_folders`: the package, which does not come back once it was removed.
    """

    can_rewind = True

    def __init__(self, folder: Path, *, below: Path | None = None) -> None:
        self._folder, self._below = folder, below
        self._buffer = io.BytesIO()
        self._records = RecordWriter(self._buffer)
        self._fd = -1

    def connect(self, state: Mapping[str, Any]) -> SinkPosition:
        durable.make_folders(self._folder, below=self._below)
        older = [entry.name for entry in os.scandir(self._folder) if f".{_FILE_INFIX}." in entry.name]
        # Readers read the files in the order of their names.
        number = max([int(time.time()), *(_file_number(name) + 1 for name in older)])
        name = f"events.out.{_FILE_INFIX}.{number:010d}.{socket.gethostname()}.roost"
        self._fd = durable.open_append(self._folder / name)
        self._put(Event(wall_time=time.time(), file_version="brain.Event:2"))
        return SinkPosition(state.get("last_step", -1)) if older else SinkPosition()

    def rewind(self, step: int) -> None:
        begin = SessionLog(status=SessionLog.START)
        self._put(Event(wall_time=time.time(), step=step + 1, session_log=begin))

    def write_row(self, row: Row) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in records.values(row).items()]
        at = row.get("time", 0.0)
        self._put(Event(wall_time=at, step=row["step"], summary=Summary(value=values)))

    def write_media(self, step: int, path: Path) -> None:
        if (value := _summary_value(path)) is not None:
            value.tag = path.stem
            event = Event(wall_time=path.stat().st_mtime, step=step, summary=Summary(value=[value]))
            self._put(event)

    def _put(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        if self._buffer.tell() >= _MAX_BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        if data := self._buffer.getvalue():
            self._buffer.seek(0)
            self._buffer.truncate()
            durable.append(self._fd, data)

    def state(self) -> dict[str, Any]:
        return {}

    def close(self, end: SessionEnd | None) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _file_number(name: str) -> int:
    digits = name.partition(f".{_FILE_INFIX}.")[2].partition(".")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 12 else 0


def _summary_value(path: Path) -> Summary.Value | None:
    """The summary value of a media file; None if TensorBoard cannot show it, or the content does not match
    the suffix. A matrix is stored with an image of it, which is shown."""
    kind = _ENCODERS.get(path.suffix)
    try:
        return kind(path.read_bytes()) if kind is not None else None
    except (ValueError, KeyError, TypeError, EOFError, wave.Error):
        return None


def _picture(data: bytes) -> Summary.Value:
    width, height = png.size(data)
    shown = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=data)
    return Summary.Value(image=shown)


def _sound(data: bytes) -> Summary.Value:
    with wave.Wave_read(io.BytesIO(data)) as file:
        shown = Summary.Audio(
            sample_rate=file.getframerate(),
            num_channels=file.getnchannels(),
            length_frames=file.getnframes(),
            encoded_audio_string=data,
            content_type="audio/wav",
        )
    return Summary.Value(audio=shown)


def _text(data: bytes) -> Summary.Value:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=shape, string_val=[data])
    return Summary.Value(metadata=metadata, tensor=tensor)


def _histogram(data: bytes) -> Summary.Value:
    """Only counts and edges of the bins are stored, so the sums are computed from the middles of the bins."""
    found = json.loads(data)
    counts, edges = found["counts"], found["edges"]
    if len(edges) != len(counts) + 1:
        raise ValueError("one edge more than counts")
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    pairs = list(zip(counts, middles, strict=True))
    shown = HistogramProto(
        min=edges[0],
        max=edges[-1],
        num=sum(counts),
        sum=sum(count * middle for count, middle in pairs),
        sum_squares=sum(count * middle**2 for count, middle in pairs),
        bucket_limit=edges,
        bucket=[0.0, *counts],
    )
    return Summary.Value(histo=shown)


_ENCODERS = {".png": _picture, ".wav": _sound, ".txt": _text, ".json": _histogram}
