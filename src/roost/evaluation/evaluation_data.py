"""`EvaluationData`: a map-style set whose samples are the rows of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roost.base.errors import ContractError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_folder import CELL, EvaluationFolder
from roost.package.results.evaluations.row_columns import ERROR, GROUP, ID, RowColumn

_MAX_NAMED = 8


class EvaluationData:
    """A set of the rows of one cell of an evaluation: the outputs of one model are the data of the next one.

    ```
    EvaluationData("runs/teacher/evaluations/soft", dataset="train", fields=["image", "logits"])
    EvaluationData("runs/asr/evaluations/beam/beam=8/best/test%clean", fields={"source": "text"})
    ```

    A sample's number is a tensor () (floats as float32), an array a tensor, a text a str, a list a list. Of a
    file it is the content, a tensor, for .npy, else the path. Skipped samples are left out. ``ids`` and
    ``groups`` are those of the evaluation.

    Args:
        folder: The folder of a cell, or of an evaluation.
        fields: The parts of a sample, by the names of results: a list makes it a tuple, a mapping of new
            names a dict. None: all results, as a dict.
        variant: Of an evaluation with several cells: the variant.
        checkpoint: The checkpoint, as it was selected.
        dataset: The set: ``test/clean``, or ``clean`` for it.

    Raises:
        NotFound: There is no such cell, or it is not finished.
        ContractError: Several cells fit, or there is no such result.
        ConfigError: The rows are Parquet, and pyarrow is not installed.
    """

    draws_randomness = False

    def __init__(
        self,
        folder: str | Path,
        *,
        fields: Sequence[str] | Mapping[str, str] | None = None,
        variant: str | None = None,
        checkpoint: str | None = None,
        dataset: str | None = None,
    ) -> None:
        chosen = {"variant": variant, "checkpoint": checkpoint, "dataset": dataset}
        self._cell = _find_cell(
            Path(folder), {key: value for key, value in chosen.items() if value is not None}
        )
        types = evaluation_rows.column_types(self._cell)
        results = evaluation_rows.result_names(types)
        names = (
            results if fields is None else list(fields.values() if isinstance(fields, Mapping) else fields)
        )
        for name in names:
            if name not in results:
                raise ContractError(
                    f"the evaluation has no such result; it has: {', '.join(results)}",
                    setting="fields",
                    received=name,
                    where=self._cell,
                    fix=f"{did_you_mean(name, results)}name one of them",
                )
        groups = [name for name in types if name.startswith(GROUP)]
        read = evaluation_rows.read_rows(self._cell, [ID, ERROR, *names, *groups])
        evaluated = read.evaluated
        columns = {name: column.take(evaluated) for name, column in read.columns.items()}
        self.ids: list[Any] = columns[ID].items()
        """The ids of the samples."""
        self.groups = {name.removeprefix(GROUP): columns[name].items() for name in groups}
        """The labels of the samples, by the name of the group."""
        self._columns = [_Values(columns[name], self._cell) for name in names]
        self._keys = None if fields is not None and not isinstance(fields, Mapping) else list(fields or names)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        values = [column.value(index) for column in self._columns]
        return tuple(values) if self._keys is None else dict(zip(self._keys, values, strict=True))


class _Values:
    """The values of one result."""

    def __init__(self, column: RowColumn, cell: Path) -> None:
        self._cell, self._is_file = cell, column.kind == "file"
        self._tensor: torch.Tensor | None = None
        if isinstance(column.values, list):
            self._items = column.values
            return
        values = np.ascontiguousarray(column.values)
        if column.missing is not None and column.missing.any():
            values = values.astype(np.float64)  # a missing number is NaN
            values[column.missing] = np.nan
        tensor = torch.from_numpy(values)
        self._tensor = tensor.float() if column.is_number and tensor.is_floating_point() else tensor

    def value(self, index: int) -> Any:
        if self._tensor is not None:
            return self._tensor[index]
        value = self._items[index]
        if not self._is_file or value is None:
            return value
        path = self._cell / value
        return torch.from_numpy(np.load(path)) if path.suffix == ".npy" else str(path)


def _find_cell(folder: Path, asked: Mapping[str, str]) -> Path:
    if (folder / CELL).is_file():
        return folder
    cells = EvaluationFolder(folder).cells()
    if not cells:
        raise NotFound(
            "this is no evaluation, and no cell of one",
            received=str(folder),
            fix="name a folder <package>/evaluations/<name>, or one of a cell in it",
        )
    chosen = dict(asked)
    if "dataset" in chosen and all(one.dataset != chosen["dataset"] for one in cells):
        chosen["dataset"] = f"test/{chosen['dataset']}"  # as in --datasets
    found = [one for one in cells if all(getattr(one, key) == value for key, value in chosen.items())]
    labels = join_names([one.label for one in found or cells], _MAX_NAMED)
    if not found:
        raise NotFound(
            f"the evaluation has no such cell; it has: {labels}", received=dict(asked), where=folder
        )
    if len(found) > 1:
        raise ContractError(
            f"{len(found)} cells of the evaluation fit: {labels}",
            where=folder,
            fix="choose one by variant=, checkpoint= and dataset=",
        )
    return found[0].path
