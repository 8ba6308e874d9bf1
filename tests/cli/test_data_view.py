from __future__ import annotations

from typing import Any

import click
import msgspec

from roost.cli.data_view import format_bars, format_splits
from roost.package.results.data_report import (
    BatchPart,
    BatchSizes,
    Distribution,
    FirstBatch,
    LabelClasses,
    LengthBin,
    LoadingTimes,
    SetReport,
    SplitReport,
)
from tests.messages import Messages

SPEECH = SetReport(
    name="train",
    class_name="Speech",
    kind="map-style",
    num_samples=1400,
    classes=LabelClasses(number=12, names=["a", "b"], fewest=3, most=200),
    weights=Distribution(least=0, median=1, mean=1.25, most=2, num_zero=7),
    lengths=Distribution(
        least=20, median=50, mean=12345.6, most=90000, num_zero=0, bins=[LengthBin(20, 39, 1)]
    ),
    unreadable=["its targets cannot be read"],
)
TRAIN = SplitReport(
    name="train",
    sets=[SPEECH],
    plan="shuffled, 16 samples a batch, 88 batches an epoch",
    num_batches=88,
    num_steps=44,
    sizes=BatchSizes(num_batches=88, least=4, median=16, most=20, padding=0.3471),
    num_workers=2,
    workers="a batch takes 3 ms",
    seeds="followed",
    inexact=["for a reason"],
    batch=FirstBatch(
        num_samples=16,
        num_bytes=20480,
        parts=[BatchPart("x", "float32", [16, 80]), BatchPart("name", "16 str")],
    ),
    times=LoadingTimes(num_batches=88, num_empty=3, first=0.5, batch=0.0003, slowest=0.0012, sample=0.000017),
)


def drawn(*splits: SplitReport) -> list[str]:
    return [click.unstyle(line) for line in format_splits(splits)]


def changed(**given: Any) -> SplitReport:
    return msgspec.structs.replace(TRAIN, **given)


def test_all_that_is_known(messages: Messages) -> None:
    found = drawn(TRAIN)
    for line, parts in zip(
        found,
        [
            ("train  Speech", "map-style", "1,400"),
            ("  plan     shuffled, 16 samples a batch, 88 batches an epoch",),
            ("  epoch    ", "44 steps", "88 batches"),
            ("  sizes    ", "4", "20", "16", "34.7%"),
            ("  batch    ", "16", "20.5 kB"),
            ("           x     float32 (16, 80)",),
            ("           name  16 str",),
            ("  time     ", "500 ms", "0.3 ms", "17 µs", "1.2 ms", "88", "3"),
            ("  workers  2: a batch takes 3 ms",),
            ("  seeds    followed",),
            ("  inexact  for a reason",),
            ("  classes  12 ", "3", "200", "a, b, …"),
            ("  weights  ", "0", "1", "1.25", "2", "7"),
            ("  lengths  ", "20", "50", "12,346", "90,000"),
            ("           20-39  ██████████████████████████████ 1",),
            ("  unread   its targets cannot be read",),
        ],
        strict=True,
    ):
        assert line.startswith(parts[0]) and all(one in line for one in parts), line
    messages.check("\n".join(found))


def test_what_is_not_known_is_left_out(messages: Messages) -> None:
    bare = SetReport(name="test", class_name="Items", kind="iterable", num_samples=None)
    one = SetReport(name="valid", class_name="list", kind="map-style", num_samples=1)
    split = SplitReport(name="test", sets=[bare], plan="as they come", num_batches=None, num_steps=None)
    other = SplitReport(name="valid", sets=[one], plan="in order", num_batches=1, num_steps=None)
    found = drawn(split, other)
    assert [line.split(" ", 1)[0] for line in found] == ["test", "", "", "valid", ""]
    assert "as they come" in found[1] and "1 sample" in found[3] and "in order" in found[4]
    messages.check("\n".join(found))


def test_several_sets_have_a_line_each() -> None:
    small = SetReport(name="train/b", class_name="list", kind="map-style", num_samples=3)
    found = drawn(changed(sets=[msgspec.structs.replace(SPEECH, name="train/a"), small]))
    assert found[0] == "train" and any(line.startswith("  classes  train/a: 12 ") for line in found)
    for line, parts in zip(
        found[1:3], (("train/a: Speech, ", "1,400"), ("train/b: list, ", "3")), strict=True
    ):
        assert line.lstrip().startswith(parts[0]) and parts[1] in line


def test_one_batch_of_one_size(messages: Messages) -> None:
    times = LoadingTimes(num_batches=1, num_empty=0, first=0.5)
    sizes = BatchSizes(num_batches=1, least=16, median=16, most=16, padding=0.0)
    found = drawn(changed(times=times, sizes=sizes, num_workers=0, workers="", num_steps=1, num_batches=1))
    assert any(line.startswith("  time     ") and "500 ms" in line for line in found)
    assert any(line.startswith("  workers  0: ") for line in found)
    messages.check("\n".join(found))
    assert not any(line.startswith("  sizes") for line in found)


def test_a_batch_of_many_parts() -> None:
    parts = [BatchPart(str(number), "int64", []) for number in range(50)]
    found = drawn(changed(batch=FirstBatch(num_samples=1, num_bytes=400, parts=parts)))
    assert "           39  int64 ()" in found and any(line.lstrip().startswith("… 10 ") for line in found)
    single = FirstBatch(num_samples=1, num_bytes=4, parts=[BatchPart("", "float32", [1])])
    assert "           float32 (1)" in drawn(changed(batch=single))


def test_bars() -> None:
    found = format_bars(
        [LengthBin(1, 1, 1000), LengthBin(2, 3, 1), LengthBin(4, 7, 0), LengthBin(8, 2000, 500)]
    )
    assert found == [
        f"      1  {'█' * 30} 1,000",
        "    2-3  █ 1",
        "    4-7  0",
        f"8-2,000  {'█' * 15} 500",
    ]
    assert format_bars([]) == []


def test_names_of_a_project_cannot_draw_on_the_terminal() -> None:
    strange = msgspec.structs.replace(SPEECH, class_name="\x1b[2J", classes=None)
    parts = [BatchPart("\x1b[2J\rx", "float32", [1])]
    split = changed(
        sets=[strange], batch=FirstBatch(num_samples=1, num_bytes=4, parts=parts), name="valid/\x1b[A"
    )
    assert not any("\x1b" in line or "\r" in line for line in drawn(split))
