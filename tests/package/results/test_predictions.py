"""The folders of predictions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roost.base.errors import Refused
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.package.results.predictions import PredictionMeta
from tests.messages import Messages

META = PredictionMeta(package="one", checkpoint=1, step=2, source="valid", count=3, values={"x": {}})


def finished(root: Path) -> Path:
    staging = root / ".unfinished"
    staging.mkdir(parents=True)
    (staging / predictions.META_FILE).write_bytes(msgspec.json.encode(META))
    return staging


def committed(root: Path) -> list[Path]:
    """Commits a prediction; returns the paths that were announced."""
    announced: list[Path] = []
    predictions.commit(finished(root), root, None, announce=announced.append)
    return announced


def test_each_gets_the_next_number(tmp_path: Path) -> None:
    root = tmp_path / predictions.NAME
    (root / "notes").mkdir(parents=True)
    for number in ("1", "2"):
        assert committed(root) == [root / number]
    (root / "7").mkdir()
    assert committed(root) == [root / "8"]
    assert predictions.read_all(PackageFolder(tmp_path)) == [(1, META), (2, META), (8, META)]


def test_a_folder_that_is_there_is_never_overwritten(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(Refused) as refused:
        predictions.commit(finished(tmp_path), tmp_path, tmp_path / "out", announce=lambda path: None)
    messages.check(refused.value)
    assert refused.value.setting == "-o"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"count": "x"}', "\0"])
def test_what_roost_did_not_write_is_no_prediction(text: str, tmp_path: Path) -> None:
    place = tmp_path / predictions.NAME / "1"
    place.mkdir(parents=True)
    (place / predictions.META_FILE).write_text(text)
    assert predictions.read_all(PackageFolder(tmp_path)) == []
