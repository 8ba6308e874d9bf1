from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from roost.package.session_schema import (
    CardMemory,
    JsonFields,
    RankEnd,
    SessionRecord,
    SessionRequest,
    process_fields,
)


def test_a_field_that_is_not_set_reads_as_its_default_and_is_not_in_the_file() -> None:
    request = SessionRequest(kind="train", overrides=["lr=0.1"])
    assert (request.kind, request.overrides, request.strategy, request.pid) == (
        "train", ["lr=0.1"], "single", None
    )  # fmt: skip
    assert json.dumps(request) == '{"kind": "train", "overrides": ["lr=0.1"]}'
    assert "strategy" not in request and request.get("strategy") is None


def test_the_order_is_that_in_which_fields_were_set() -> None:
    record = SessionRecord(state="running", session=1)
    record.warm, record.state = True, "failed"
    assert list(record.items()) == [("state", "failed"), ("session", 1), ("warm", True)]


def test_unknown_fields_and_null_are_kept() -> None:
    fields = {"newer": {"a": 1}, "state": None, "update": 1}
    record = SessionRecord.from_json(fields)
    assert record.state is None and dict(record) == fields
    record.seconds = 1.0
    assert dict(record) == {**fields, "seconds": 1.0}


def test_a_field_that_is_not_declared_is_no_attribute() -> None:
    record = SessionRecord.from_json({"newer": 1})
    with pytest.raises(AttributeError, match="newer"):
        record.newer  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="stat"):
        record.stat = "failed"  # type: ignore[attr-defined]


def test_a_default_is_not_shared() -> None:
    first = SessionRequest.from_json({})
    first.overrides.append("lr=0.1")
    assert first.overrides == SessionRequest.from_json({}).overrides == []


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_one_too(copied: object) -> None:
    assert callable(copied)
    again = copied(SessionRequest(kind="python"))
    assert type(again) is SessionRequest and again == {"kind": "python"} and again.ranks == 1


@pytest.mark.parametrize("schema", [SessionRequest, SessionRecord, RankEnd, CardMemory])
def test_no_field_hides_a_method(schema: type[JsonFields]) -> None:
    assert not schema.DEFAULTS.keys() & set(dir(dict))


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    assert SessionRecord.load(str(path)) is None
    path.write_text('{"state": "failed", "newer": 1}')
    found = SessionRecord.load(str(path))
    assert found is not None and found.state == "failed" and found == {"state": "failed", "newer": 1}


def test_the_fields_of_a_process_belong_to_both_files() -> None:
    assert process_fields(1).keys() <= SessionRequest.DEFAULTS.keys() & SessionRecord.DEFAULTS.keys()
