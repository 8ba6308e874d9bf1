"""Formats the report on a project's data as text for `roost show --data`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from roost.base.text.byte_sizes import format_bytes
from roost.base.text.durations import format_short_duration
from roost.display import terminal
from roost.package.results.data_report import (
    BatchSizes,
    Distribution,
    FirstBatch,
    LabelClasses,
    LengthBin,
    LoadingTimes,
    SetReport,
    SplitReport,
)

_BAR_CHARACTERS = 30
"""Characters of the longest bar."""
_TITLE_CHARACTERS = 9
_MAX_PARTS = 40


def format_splits(splits: Sequence[SplitReport]) -> Iterator[str]:
    """Yields the lines of all splits; `click.echo` removes the colours where none are allowed."""
    for number, split in enumerate(splits):
        if number:
            yield ""
        yield from _split_lines(split)


def _split_lines(split: SplitReport) -> Iterator[str]:
    alone = len(split.sets) == 1
    about = f"  {_describe_set(split.sets[0])}" if alone else ""
    yield click.style(terminal.escape_line(split.name), bold=True) + about
    rows = [] if alone else [("", f"{one.name}: {_describe_set(one)}") for one in split.sets]
    rows += [("plan", split.plan), ("epoch", _epoch(split)), ("sizes", _sizes(split.sizes))]
    rows += [("batch", text) for text in _batch(split.batch)]
    rows += [("time", _times(split.times)), ("workers", _workers(split)), ("seeds", split.seeds)]
    rows += [("inexact", text) for text in split.inexact]
    for one in split.sets:
        rows += [
            (what, text if alone else f"{one.name}: {text}") for what, text in _label_and_length_rows(one)
        ]
    yield from _add_titles((title, text) for title, text in rows if text)


def _add_titles(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Shows a title only before the first of its lines."""
    before = ""
    for title, text in rows:
        yield f"  {title if title != before else '':<{_TITLE_CHARACTERS}}{terminal.escape_line(text)}"
        before = title


def _describe_set(one: SetReport) -> str:
    number = "an unknown number of" if one.num_samples is None else f"{one.num_samples:,}"
    return terminal.escape_line(
        f"{one.class_name}, {one.kind}, {number} sample{'s' * (one.num_samples != 1)}"
    )


def _epoch(split: SplitReport) -> str:
    if split.num_steps is None or split.num_batches is None:
        return ""
    return f"{_count(split.num_steps, 'step')} of {_count(split.num_batches, 'batch', 'batches')}"


def _sizes(sizes: BatchSizes | None) -> str:
    if sizes is None or (sizes.least == sizes.most and not sizes.padding):
        return ""
    if sizes.least == sizes.most:
        text = f"{_count(sizes.most, 'sample')} a batch"
    else:
        text = f"{sizes.least:,} to {sizes.most:,} samples a batch, median {sizes.median:,g}"
    return text if sizes.padding is None else f"{text}, {sizes.padding:.1%} padding"


def _batch(batch: FirstBatch | None) -> Iterator[str]:
    if batch is None:
        return
    yield f"{_count(batch.num_samples, 'sample')}, {format_bytes(batch.num_bytes)}"
    shown = batch.parts[:_MAX_PARTS]
    width = max((len(part.name) for part in shown), default=0)
    for part in shown:
        shape = "" if part.shape is None else f" ({', '.join(map(str, part.shape))})"
        yield f"{part.name:<{width}}{'  ' * (width > 0)}{part.kind}{shape}"
    if len(batch.parts) > len(shown):
        yield f"… {len(batch.parts) - len(shown)} more"


def _times(times: LoadingTimes | None) -> str:
    if times is None:
        return ""
    batches_read = _count(times.num_batches, "batch", "batches")
    empty = f", {times.num_empty:,} of them empty" if times.num_empty else ""
    summary = f"the first batch after {format_short_duration(times.first)}"
    if times.batch is not None and times.slowest is not None:
        summary += f", then {format_short_duration(times.batch)} a batch"
        summary += f", {_format_seconds(times.sample)} a sample" if times.sample is not None else ""
        summary += f", the slowest {format_short_duration(times.slowest)}"
    return f"{summary} ({batches_read} read{empty})"


def _format_seconds(seconds: float) -> str:
    """`format_short_duration`, and microseconds below a millisecond."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 0.9995e-3 else format_short_duration(seconds)


def _workers(split: SplitReport) -> str:
    if split.num_workers is None:
        return ""
    why = split.workers or ("" if split.num_workers else "read in the training process")
    return f"{split.num_workers}: {why}" if why else str(split.num_workers)


def _label_and_length_rows(one: SetReport) -> Iterator[tuple[str, str]]:
    if one.classes is not None:
        yield "classes", _classes(one.classes)
    if one.weights is not None:
        zero = f", {one.weights.num_zero:,} of them 0" if one.weights.num_zero else ""
        yield "weights", _distribution(one.weights) + zero
    if one.lengths is not None:
        yield "lengths", _distribution(one.lengths)
        yield from (("lengths", text) for text in format_bars(one.lengths.bins))
    yield from (("unread", text) for text in one.unreadable)


def _classes(classes: LabelClasses) -> str:
    more = ", …" if classes.number > len(classes.names) else ""
    names = f": {', '.join(classes.names)}{more}" if classes.names else ""
    if classes.fewest is None or classes.most is None:
        return f"{classes.number:,}{names}"
    return f"{classes.number:,} of {classes.fewest:,} to {classes.most:,} samples{names}"


def _distribution(spread: Distribution) -> str:
    mean = _format_number(spread.mean)
    return f"min {spread.least:,g}, median {spread.median:,g}, mean {mean}, max {spread.most:,g}"


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_bars(bins: Sequence[LengthBin]) -> list[str]:
    """Returns a line for each bin: its lengths, a bar, its number of samples."""
    names = [f"{one.least:,}" if one.least == one.most else f"{one.least:,}-{one.most:,}" for one in bins]
    width = max(map(len, names), default=0)
    fullest = max((one.num_samples for one in bins), default=0)
    found = []
    for name, one in zip(names, bins, strict=True):
        # A bin that is not empty has a visible bar.
        bar = "█" * max(round(_BAR_CHARACTERS * one.num_samples / fullest), 1 if one.num_samples else 0)
        found.append(f"{name:>{width}}  {bar}{' ' * (len(bar) > 0)}{one.num_samples:,}")
    return found


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"
