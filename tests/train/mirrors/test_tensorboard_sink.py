from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from roost.train.mirrors.record_feed import RecordFeed
from roost.train.mirrors.tensorboard_sink import TensorBoardSink
from tests.train.mirrors.recorded import (
    events,
    folded,
    narrow,
    png,
    scalars,
    session,
    show,
    show_all,
    wav,
)


def feed_of(package: Path) -> RecordFeed:
    feed = RecordFeed(package, TensorBoardSink(package / "tb"), package / "mirrors" / "tensorboard.json")
    feed.open()
    return feed


def test_its_own_reader_reads_every_value(tmp_path: Path) -> None:
    writer = session(tmp_path, 1, 0, [1, 20, 300])
    writer.row(301, 0, {"train/loss": float("inf"), "valid/loss": 1e30})
    feed_of(tmp_path)
    assert scalars(tmp_path / "tb") == narrow(folded(tmp_path))
    times = [one.wall_time for one in events(tmp_path / "tb").Scalars("train/loss")]
    assert times == [row["time"] for row in _rows(tmp_path)]


def _rows(package: Path) -> list[dict[str, Any]]:
    from roost.package import records

    return records.fold(package / "records").rows


def test_a_second_session_purges_what_it_does_again(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10, 20, 30, 40])
    show(tmp_path, 40, "p.png", png())
    feed = feed_of(tmp_path)
    feed.save_position()
    feed.discard()  # killed
    session(tmp_path, 2, 20, [30], **{"train/loss": 9.0})
    feed_of(tmp_path)
    assert scalars(tmp_path / "tb") == narrow(folded(tmp_path))
    assert list(scalars(tmp_path / "tb")) == [10, 20, 30]
    assert len(list((tmp_path / "tb").iterdir())) == 2


def test_a_running_reader_sees_the_same(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10, 20, 30])
    feed = feed_of(tmp_path)
    reader = events(tmp_path / "tb")
    session(tmp_path, 2, 10, [20], **{"train/loss": 9.0})
    feed.send_new()
    reader.Reload()
    assert [(one.step, one.value) for one in reader.Scalars("train/loss")] == [
        (step, np.float32(values["train/loss"])) for step, values in folded(tmp_path)
    ]


def test_a_torn_end_does_not_hide_the_next_session(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10, 20])
    feed_of(tmp_path).discard()  # not noted: it would not know what it has
    (file,) = (tmp_path / "tb").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    session(tmp_path, 2, 20, [30])
    feed_of(tmp_path)
    assert scalars(tmp_path / "tb") == narrow(folded(tmp_path))


def test_media(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [10])
    show_all(tmp_path, 10)
    show(tmp_path, 10, "broken.png", b"no picture")
    show(tmp_path, 10, "broken.json", b"{}")
    show(tmp_path, 10, "unknown.xyz")
    feed_of(tmp_path)
    found = events(tmp_path / "tb")
    tags = found.Tags()
    assert (sorted(tags["images"]), tags["audio"], tags["histograms"], tags["tensors"]) == (
        ["m", "p"],
        ["s"],
        ["h"],
        ["t"],
    )
    (picture,), (small,) = found.Images("p"), found.Images("m")
    assert (picture.step, picture.width, picture.height) == (10, 4, 3)
    assert picture.encoded_image_string == png()
    assert (small.width, small.height) == (2, 2)
    (sound,) = found.Audio("s")
    assert (sound.encoded_audio_string, sound.sample_rate, sound.length_frames) == (wav(), 8000, 80)
    (histogram,) = found.Histograms("h")
    value = histogram.histogram_value
    assert list(value.bucket_limit) == [0.0, 1.0, 2.0] and list(value.bucket) == [0.0, 1.0, 3.0]
    assert (value.min, value.max, value.num, value.sum) == (0.0, 2.0, 4.0, 5.0)
    (text,) = found.Tensors("t")
    assert text.tensor_proto.string_val == [b"<words>"]


def test_tensorflow_and_torch_are_not_imported() -> None:
    import subprocess
    import sys

    program = (
        "import sys, roost.train.mirrors.tensorboard_sink; "
        "assert not {'torch', 'tensorflow'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
