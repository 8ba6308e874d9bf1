"""Rows of an evaluation: parts, their merging to the same bytes however they were divided, both formats."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from roost.base import durable
from roost.base.errors import ConfigError, ContractError, NotFound, RoostError
from roost.package.results.evaluations import evaluation_folder, evaluation_rows, row_files
from roost.package.results.evaluations.row_columns import column_of, concatenate, encode_json, join
from tests.evaluation.made_evaluation import write_cell_file, write_cells

FORMATS = ["parquet", "jsonl"]


def cell(tmp_path: Path, form: str) -> Path:
    folder = tmp_path / form
    folder.mkdir(parents=True)
    write_cell_file(folder, form=form)
    return folder


def sample(index: int, id_: Any) -> dict[str, Any]:
    """A row with every kind of value; some values are missing, NaN or infinite."""
    row: dict[str, Any] = {
        "id": id_,
        "wer": [0.25 * index, math.nan, math.inf, 3][index % 4],
        "errors": index,
        "correct": index % 2 == 0,
        "text": f"{'wörd' if index % 5 else 'word'} {index}\n<b>" + "\udcff" * (index == 3),
        "tokens": list(range(index % 5)),
        "scores": [math.nan, -math.inf, None, 0.5][: index % 5],
        "spans": {"nonfinite": "nan" * (index % 2), "null": [{"start": math.inf}]},
        "logits": np.array([[0, index, 2 * index], [3 * index, np.inf, np.nan]], np.float32),
        "group/speaker": "ab"[index % 2],
    }
    if index % 3 == 0:
        row |= {"sound": {"file": f"files/{index}.sound.wav"}, "rare": float(index)}
    if index % 7 == 0:
        del row["text"], row["logits"]
    return row


def written(folder: Path, order: list[list[int]], ids: list[Any]) -> bytes:
    """Writes the batches of each part, merges them and returns the bytes of all rows."""
    for number, batches in enumerate(order):
        rows = [
            sample(i, ids[i]) for batch in batches for i in range(4 * batch, min(4 * batch + 4, len(ids)))
        ]
        own = {batch: {"loss": batch / 4} for batch in batches}
        evaluation_rows.write_part(folder, batches, rows, session=number, rank=number % 3, batch_values=own)
    assert evaluation_rows.finished_batches(folder) == {batch for batches in order for batch in batches}
    evaluation_rows.merge(folder, ids)
    assert not (folder / "parts").exists()
    path = evaluation_rows.rows_path(folder)
    assert path is not None
    return path.read_bytes() + (folder / "batches.jsonl").read_bytes()


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        is_like = type(left) is type(right) and left.dtype == right.dtype
        return is_like and np.array_equal(left, right, equal_nan=True)
    if isinstance(left, list | dict):
        return repr(left) == repr(right)  # NaN does not equal itself
    return left == right or (left != left and right != right)


@pytest.mark.parametrize("form", FORMATS)
def test_the_bytes_do_not_depend_on_the_parts(tmp_path: Path, form: str) -> None:
    ids = [f"utt/{i}" for i in range(30)]
    batches = list(range(8))
    first = written(cell(tmp_path / "a", form), [batches], ids)
    for seed in range(3):
        order = random.Random(seed).sample(batches, len(batches))
        cuts = [order[:1], order[1:4], order[4:6], order[6:]]
        assert written(cell(tmp_path / str(seed), form), cuts, ids) == first


@pytest.mark.parametrize("form", FORMATS)
def test_every_value_comes_back(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_LINES_PER_CHUNK", 7)
    monkeypatch.setattr(evaluation_rows, "_MAX_GROUP_ROWS", 8)
    monkeypatch.setattr(evaluation_rows, "_MIN_GROUP_ROWS", 8)
    folder, ids = cell(tmp_path, form), list(range(100, 130))
    written(folder, [[5, 1, 3], [0, 2, 4, 6, 7]], ids)
    wanted = [sample(i, ids[i]) for i in range(30)]
    wanted[3]["text"] = wanted[3]["text"].replace("\udcff", "\\udcff")
    rows = evaluation_rows.read_rows(folder)
    assert rows.ids == ids
    assert rows.metrics == ["correct", "errors", "rare", "wer"]
    assert rows.groups == ["speaker"]
    assert rows.columns["logits"].values.shape == (30, 2, 3)
    present = evaluation_rows.rows_at(folder, range(len(ids))).items()
    found = {at: {name: one for name, one in row.items() if one is not None} for at, row in present}
    for place, row in enumerate(wanted):
        sound = row.pop("sound", None)
        assert found[place].pop("sound", None) == (sound and sound["file"])
        assert found[place].keys() == row.keys()
        assert all(same(found[place][name], row[name]) for name in row), place
        assert rows.row(place).keys() - {"sound"} == row.keys()
    some = evaluation_rows.rows_at(folder, [29, 3, 3])
    assert sorted(some) == [3, 29] and some[29]["errors"] == 29 and some[29]["rare"] is None
    assert evaluation_rows.read_rows(folder, ["id", "wer"]).columns.keys() == {"id", "wer"}
    assert evaluation_rows.read_batch_values(folder)[3] == {"batch": 3, "loss": 0.75}


@pytest.mark.parametrize("form", FORMATS)
def test_columns_and_rows_give_the_same_bytes(tmp_path: Path, form: str) -> None:
    values = [0.5, math.nan, 2.0]
    one, two = cell(tmp_path / "a", form), cell(tmp_path / "b", form)
    rows = [{"id": i, "wer": value, "text": str(i)} for i, value in enumerate(values)]
    evaluation_rows.write_part(one, [0], rows, session=1, rank=0)
    columns = {"id": np.arange(3), "wer": np.array(values, np.float32), "text": ["0", "1", "2"]}
    evaluation_rows.write_part(two, [0], columns, session=1, rank=0)
    for folder in (one, two):
        evaluation_rows.merge(folder, range(3))
    left, right = evaluation_rows.rows_path(one), evaluation_rows.rows_path(two)
    assert left is not None and right is not None and left.read_bytes() == right.read_bytes()


@pytest.mark.parametrize("form", FORMATS)
def test_empty_batches_and_an_empty_set(tmp_path: Path, form: str) -> None:
    folder = cell(tmp_path, form)
    evaluation_rows.write_part(folder, [0], [], session=1, rank=0)
    evaluation_rows.write_part(folder, [1], [], session=1, rank=1)
    assert evaluation_rows.finished_batches(folder) == {0, 1}
    evaluation_rows.merge(folder, [])
    evaluation_rows.merge(folder, [])  # of a killed session: nothing is left to do
    assert len(evaluation_rows.read_rows(folder)) == 0


@pytest.mark.parametrize("form", FORMATS)
def test_every_id_has_one_row(tmp_path: Path, form: str) -> None:
    def merged(ids: list[Any], given: list[Any]) -> RoostError:
        folder = cell(tmp_path / str(len(list(tmp_path.iterdir()))), form)
        for number, id_ in enumerate(given):
            evaluation_rows.write_part(folder, [number], [{"id": id_}], session=1, rank=0)
        with pytest.raises(RoostError) as caught:
            evaluation_rows.merge(folder, ids)
        assert (folder / "parts").is_dir() and evaluation_rows.rows_path(folder) is None
        return caught.value

    assert "have no row: 'c', 'd'" in str(merged(["a", "b", "c", "d"], ["b", "a"]))
    assert "more than one row: 'a'" in str(merged(["a", "b"], ["a", "b", "a"]))
    assert "not of the set: 'x'" in str(merged(["a"], ["a", "x"]))
    assert "not of the set: '1'" in str(merged([1], ["1"]))


def test_a_skipped_sample_has_a_row(tmp_path: Path) -> None:
    folder = cell(tmp_path, "parquet")
    rows = [{"id": 0, "wer": 0.5}, {"id": 1, "skipped/error": "RuntimeError: out of memory"}]
    evaluation_rows.write_part(folder, [0], rows, session=1, rank=0)
    evaluation_rows.merge(folder, range(2))
    found = evaluation_rows.read_rows(folder)
    assert evaluation_rows.skipped(found) == [(1, "RuntimeError: out of memory")]
    assert found.metrics == ["wer"]


def test_a_part_is_whole_or_absent(tmp_path: Path) -> None:
    """A full disk while a part is written leaves those before it, and no torn one."""
    folder = cell(tmp_path, "parquet")
    evaluation_rows.write_part(folder, [0], [{"id": 0}], session=1, rank=0)

    def full(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device", path)

    durable.fault = full
    try:
        with pytest.raises(OSError, match="No space left"):
            evaluation_rows.write_part(folder, [1], [{"id": 1}], session=1, rank=0)
    finally:
        durable.fault = None
    assert evaluation_rows.finished_batches(folder) == {0}
    (folder / "parts" / "00000001-0-1.parquet").write_bytes(b"PAR1torn")
    with pytest.raises(RoostError, match="cannot be read"):
        evaluation_rows.finished_batches(folder)


def test_parquet_without_pyarrow_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cell(tmp_path, "parquet")
    evaluation_rows.write_part(folder, [0], [{"id": 0}], session=1, rank=0)
    assert row_files.installed_format() == "parquet"
    monkeypatch.setattr(row_files.importlib.util, "find_spec", lambda name: None)
    assert row_files.installed_format() == "jsonl"
    for read in (evaluation_rows.finished_batches, evaluation_rows.row_format):
        with pytest.raises(ConfigError, match="pyarrow is not installed"):
            read(folder)


def test_a_cell_without_rows_or_format(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no rows yet"):
        evaluation_rows.read_rows(cell(tmp_path, "jsonl"))
    with pytest.raises(RoostError, match="that of no cell"):
        evaluation_rows.row_format(tmp_path)


def test_large_arrays_and_objects_are_refused() -> None:
    with pytest.raises(ContractError) as caught:
        column_of(np.zeros((2, 2000)), "spectrum")
    assert caught.value.setting == "spectrum"
    with pytest.raises(ContractError) as caught:
        column_of([object()], "thing")
    assert caught.value.setting == "thing"


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), st.text(max_size=2),
    st.lists(st.integers(0, 2), max_size=2), st.just({"file": "files/x"}), st.integers(2**63, 2**64),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, max_size=6), st.integers(0, 6))
def test_a_column_does_not_depend_on_the_parts(values: list[Any], cut: int) -> None:
    whole = column_of(values)
    parts = [column_of(values[:cut]), column_of(values[cut:])]
    assert join(one.type for one in parts) == whole.type
    joined, alone = concatenate(parts).items(), whole.items()
    assert [encode_json(one) for one in joined] == [encode_json(one) for one in alone]


def test_the_readers_of_an_evaluation(tmp_path: Path) -> None:
    root = tmp_path / "evaluations" / "beam"
    root.mkdir(parents=True)
    write_cells(root, [{"folder": "default/best/test", "state": "finished"}])
    (root / "request.json").write_text(json.dumps({"checkpoints": "best"}))
    (tmp_path / "evaluations" / "notes").mkdir()
    (found,) = evaluation_folder.read_all(tmp_path)
    assert found.name == "beam" and found.request == {"checkpoints": "best"}
    (one,) = found.cells()
    assert one.path == root / "default" / "best" / "test" and one.state == "finished" and one.summary is None


@pytest.mark.parametrize("folder", ["/", "../a", "a/../../b"])
def test_no_cell_is_outside_of_its_evaluation(tmp_path: Path, folder: str) -> None:
    write_cells(tmp_path, [{"folder": folder}])
    with pytest.raises(RoostError, match="outside of the evaluation"):
        evaluation_folder.read_grid(tmp_path)
    assert evaluation_folder.EvaluationFolder(tmp_path).cells() == []


def test_a_line_that_is_no_row_is_damage(tmp_path: Path) -> None:
    folder = cell(tmp_path, "jsonl")
    evaluation_rows.write_part(folder, [0], [sample(0, "a")], session=1, rank=0)
    (part,) = (folder / "parts").iterdir()
    part.write_bytes(part.read_bytes() + b"[]\n")
    with pytest.raises(RoostError, match="no JSON object"):
        evaluation_rows.merge(folder, ["a"])


def test_rows_are_written_and_read_without_pandas(tmp_path: Path) -> None:
    """Which pyarrow would import where it is installed: a second, and 80 MB of each evaluation."""
    program = (
        "import sys, numpy, pathlib\n"
        "from roost.package.results.evaluations import evaluation_rows\n"
        "cell = pathlib.Path(sys.argv[1])\n"
        "columns = {'id': [1, 2], 'a': numpy.zeros((2, 3)), 'b': [None, 0.5], 'c': [True, None]}\n"
        "columns['d'] = ['x', None]\n"
        "evaluation_rows.write_part(cell, [0], columns, session=1, rank=0)\n"
        "evaluation_rows.merge(cell, [1, 2])\n"
        "assert evaluation_rows.read_rows(cell).ids == [1, 2]\n"
        "assert len(evaluation_rows.rows_at(cell, [1])) == 1\n"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(cell(tmp_path, "parquet"))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    folder = cell(tmp_path, "parquet")
    written(folder, [[0, 1, 2, 3, 4, 5, 6, 7]], list(range(30)))
    table = parquet.read_table(folder / "rows.parquet").to_pylist()
    assert table[9]["logits"][:4] == [9.0 * n for n in range(4)] and table[7]["logits"] is None
    assert table[6]["sound"] == "files/6.sound.wav" and json.loads(table[9]["tokens"]) == [0, 1, 2, 3]
    assert table[10]["group/speaker"] == "a" and table[5]["correct"] is False and table[1]["rare"] is None


def test_only_columns_that_repeat_their_values_have_a_dictionary(tmp_path: Path) -> None:
    """Of ids, floats and arrays it is larger than the values, and most of the time of writing."""
    write_cell_file(tmp_path)
    values = {
        "id": [f"utterance {number}" for number in range(300)],
        "loss": np.arange(300.0),
        "scores": np.arange(600.0).reshape(300, 2),
        "predicted": np.arange(300) % 3,
        "text": [f"digit {number % 3}" for number in range(300)],
        "group/speaker": [f"speaker {number % 3}" for number in range(300)],
    }
    path = evaluation_rows.write_part(tmp_path, [0], values, session=1, rank=0)
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    named = {one.path_in_schema for one in columns if "RLE_DICTIONARY" in one.encodings}
    assert named == {"predicted", "text", "group/speaker"}
