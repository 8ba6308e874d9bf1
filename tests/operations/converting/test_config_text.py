"""A config that was written is read with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.config_files import read_config_file
from roost.operations.converting.config_text import config_text

KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda key: key != "<<")
ODD = st.sampled_from(["1e-3", "-1", "null", "true", "~", "010", "0x1f", "a: b", "# x", "", " x", "*a", "&a"])
SINGLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), ODD
)
VALUES = st.recursive(
    SINGLE, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4))
)


@settings(max_examples=300, deadline=None)
@given(values=st.dictionaries(KEYS, VALUES, min_size=1, max_size=5))
def test_the_values_are_read_again(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("text") / "config.yaml"
    file.write_text(config_text(values, {}, head="Two\nlines."), encoding="utf-8")
    assert repr(read_config_file(file).values) == repr(values)


def test_comments_are_behind_their_keys(tmp_path: Path) -> None:
    text = config_text(
        {"max_epochs": 3, "data": {"batch_size": 2}, "best": [{"a": 1}]},
        {"max_epochs": "num_epochs", "data.batch_size": "batch\nsize", "best": "selection"},
    )
    rows = [line.split("  # ") for line in text.splitlines() if "# " in line]
    assert [(row[0].strip(), row[1]) for row in rows] == [
        ("max_epochs: 3", "num_epochs"),
        ("batch_size: 2", "batch size"),
        ("best: [{a: 1}]", "selection"),
    ]
