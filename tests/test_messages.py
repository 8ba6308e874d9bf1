"""The snapshot of messages: another text fails, a volatile part does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import messages as snapshot
from tests.messages import Messages


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot of our own, in which this file's first test has one message."""
    path = tmp_path / "messages.json"
    path.write_text("{}")
    monkeypatch.setattr(snapshot, "FILE", path)
    monkeypatch.setattr(snapshot, "_read", {})
    return path


KEY = "tests/test_messages.py::test_another_message_fails"


def test_another_message_fails(file: Path, tmp_path: Path) -> None:
    first = Messages(KEY, tmp_path, update=True)
    first.check(f"lr: is missing in {tmp_path}/config.yaml (pid 12)")
    first.write()
    Messages(KEY, tmp_path, update=False).check(f"lr: is missing in {tmp_path}/config.yaml (pid 77)")
    with pytest.raises(AssertionError, match="another message"):
        Messages(KEY, tmp_path, update=False).check("lr: is missing")
    with pytest.raises(AssertionError, match="no snapshot"):
        Messages(KEY + "[other]", tmp_path, update=False).check("lr: is missing")


def test_a_test_that_is_gone_leaves_the_snapshot(file: Path) -> None:
    snapshot.renew(
        {KEY: ["kept"], "tests/test_messages.py::test_gone": ["dropped"], "tests/gone.py::test": ["x"]}
    )
    assert list(snapshot.json.loads(file.read_text())) == [KEY]
