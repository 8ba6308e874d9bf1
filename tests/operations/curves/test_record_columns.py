"""Lines as columns: those that look alike together, the others one by one, and both the same."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.operations.curves import record_columns
from roost.operations.curves.record_columns import (
    LineDecoder,
    RowBlock,
    block_from_rows,
    join_blocks,
    join_column,
    repeated_steps,
)
from roost.package import records


def decode_all(data: bytes, pieces: int) -> tuple[list[RowBlock], LineDecoder]:
    """All rows of some lines, given in several pieces."""
    lines = LineDecoder()
    found: list[RowBlock] = []
    rows = data.splitlines(keepends=True)
    size = max(1, len(rows) // pieces)
    for at in range(0, len(rows), size):
        for one in lines.decode(b"".join(rows[at : at + size])):
            if isinstance(one, RowBlock):
                found.append(one)
            else:
                for block in found:
                    block.discard_after(one)
    return found, lines


def content(blocks: list[RowBlock]) -> Any:
    block = join_blocks(blocks)
    rows = {}
    for name in block.first_rows:
        column = block.column(name)
        at = range(len(block.steps)) if column.rows is None else column.rows.tolist()
        rows[name] = list(zip(at, map(repr, column.values.tolist()), strict=True))
    shape = [block.metric_sets[0]] * len(block.steps)
    if block.set_numbers is not None:
        shape = [block.metric_sets[one] for one in block.set_numbers.tolist()]
    return block.steps.tolist(), shape, rows


BODIES = [
    '{"step":%d,"epoch":0,"time":1.5,"a":%r,"b":1}',
    '{"step":%d,"epoch":0,"time":1.5,"a":%r,"b":null,"nonfinite":{"b":"nan"}}',
    '{"step":%d,"a":%r}',
    '{"step":%d,"a":%r,"b":null,"\\u006eonfinite":{"b":"inf"}}',
    '{"step":%d,"a":%r,"perf/x_ms":3.0,"stats/n":2}',
]
STRANGE = [
    '{"step":%d,"a":%r,"b":null,"nonfinite":{"c":"-inf"}}', '{"step":%d,"a":%r,"b":true}',
    '{"step":%d,"a":%r,"b":"text"}', '{"step":%d.0,"a":%r}', '{"step":%d,"a":%r,"b":36893488147419103232}',
    '{"step":%d,"a":%r,"b":null,"nonfinite":{"b":"odd"}}', '{"step":%d,"a":%r,"b":1e999}',
    '{"step":%d,"a":%r,"b":null}', '{"step":%d,"a":%r,"a":7}', '{"step":%d,"a":%r,', '', '[%d,%r]',
    '{"step":%d,"a":%r,"nonfinite":null}', '{"step":%d,"a":%r,"nonfinite":{"step":"1"}}',
    '{"step":%d,"a":%r,"time":"x","epoch":{}}', '{"step":%d,"a":%r,"c":{"d":1}}', '{"a":%d,"b":%r}',
    '{"start_step":%d,"session":1,"a":%r}', '{"step":%d,"a":%r,"b":1e300}',
    '{"step":99999%d999999999999,"a":%r}',
]  # fmt: skip


@settings(max_examples=15, deadline=None, derandomize=True)
@given(draw=st.randoms(use_true_random=True), kinds=st.integers(1, len(BODIES)))
def test_as_one_by_one(draw: random.Random, kinds: int) -> None:
    lines, step = [], 0
    for _ in range(120):
        step += draw.choice([0, 1, 1, 1, 5])
        body = draw.choice(STRANGE) if draw.random() < 0.05 else draw.choice(BODIES[:kinds])
        line = body % (step, draw.random()) if "%" in body else body
        lines += [line] * draw.choice([1] * 20 + [2])
    data = ("\n".join(lines) + "\n").encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_columns, "_SAMPLE_BYTES", len(data))
        expected, slow = decode_all(data, 1)
        patch.setattr(record_columns, "_SAMPLE_BYTES", 1000)
        for pieces in (1, 2, 7, 40):
            found, quick = decode_all(data, pieces)
            assert content(found) == content(expected)
            assert (quick.torn, quick.last_line) == (slow.torn, slow.last_line)


def test_lines_that_look_alike_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first ones, however much is read at once, and whatever some of the others lack."""
    one_by_one = []
    decode_row = records.decode_row
    monkeypatch.setattr(records, "decode_row", lambda line: one_by_one.append(line) or decode_row(line))
    rows = [BODIES[step % 4 != 0] % (step, float(step)) for step in range(2000)]
    (block,) = (
        join_blocks(found) for found, _ in [decode_all("".join(f"{row}\n" for row in rows).encode(), 1)]
    )
    assert len(block.steps) == 2000 and block.column("b").rows is None
    assert 0 < len(one_by_one) < 200


def test_the_first_way_is_that_of_records() -> None:
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0, "b": 3}, {"step": 2, "perf/x": 1.0}]
    block = block_from_rows(rows)
    assert block.steps.tolist() == [1, 2, 2] and block.first_rows == {"a": 0, "b": 1, "perf/x": 2}
    assert block.metric_sets == [("a",), ("a", "b"), ()]
    assert [records.decode_row(json.dumps(row).encode()) for row in rows] == rows


def test_parts_as_one() -> None:
    one, two = (
        block_from_rows([{"step": 1, "a": 1.0}, {"step": 5, "a": 2.0}]),
        block_from_rows([{"step": 2, "b": 3.0}]),
    )
    one.discard_after(3)
    assert join_column([one, two], "a").rows.tolist() == [0] and join_column(
        [one, two], "b"
    ).rows.tolist() == [1]  # type: ignore[union-attr]
    assert join_column([one], "a").rows is None and join_column([one], "c").values.tolist() == []
    one.discard_after(0)
    assert join_blocks([one]).steps.tolist() == [] and join_blocks([one, two]).first_rows == {"b": 0}


def test_where_steps_are_repeated() -> None:
    assert repeated_steps(np.array([1, 2, 2, 2, 3, 4, 4])) == [(1, 4), (5, 7)]
    assert repeated_steps(np.zeros(0, np.int64)) == []


@pytest.mark.parametrize("name", ['top "1"', "a\\b", "\x1b[31m", "line\n"])
def test_a_name_that_json_escapes(name: str) -> None:
    rows = [{"step": step, "epoch": 0, "time": 1.5, name: float(step), "loss": 1.0} for step in range(3000)]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    blocks, _ = decode_all(data, 3)
    steps, _, found = content(blocks)
    assert steps == list(range(3000)) and found[name][-1] == (2999, "2999.0")
