"""Columns as tables of libraries that may be missing."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

from roost.base.errors import Refused
from roost.operations.python_api import tables
from tests.messages import Messages


def test_columns_of_several_types() -> None:
    pytest.importorskip("pyarrow")
    found = tables.to_arrow({"a": [1, "x", None, [2]], "b": [1, 2, None, 4]})
    assert found["a"].to_pylist() == ["1", '"x"', None, "[2]"] and found["b"].to_pylist() == [1, 2, None, 4]


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_a_library_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    def missing(wanted: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {wanted!r}", name=wanted)

    monkeypatch.setattr(importlib, "import_module", missing)
    ask: dict[str, Any] = {
        "pandas": lambda: tables.to_pandas({"a": [1]}, index="a"),
        "pyarrow": lambda: tables.to_arrow({"a": [1]}),
    }
    with pytest.raises(Refused) as error:
        ask[name]()
    messages.check(str(error.value))
