"""Where mirrors may write."""

from __future__ import annotations

import msgspec
import pytest

from roost.base.errors import ConfigError
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.config.run_settings import RunSettings
from roost.config.sections.mirrors import MirrorSettings
from roost.package.project_preflight import check_mirror_paths
from tests.dlnest_project import VALUES
from tests.messages import Messages


def settings(**given: object) -> RunSettings:
    return RunSettings(mirrors=msgspec.convert(given, MirrorSettings))


@pytest.mark.parametrize(
    ("kind", "field", "place"),
    [
        ("csv", "file", "/elsewhere/x.csv"),
        ("csv", "file", "../x.csv"),
        ("csv", "file", "args.json"),
        ("csv", "file", "records/x.csv"),
        ("csv", "file", "data/table.csv"),
        ("tensorboard", "folder", "Checkpoints"),
        ("tensorboard", "folder", "predictions"),
        ("tensorboard", "folder", "data"),
        ("tensorboard", "folder", "linked"),
        ("tensorboard", "folder", "linked/events"),
        ("tensorboard", "folder", "."),
        ("csv", "file", "${package}/x.csv"),
    ],
)
def test_a_place_that_is_not_its_own(kind: str, field: str, place: str, messages: Messages) -> None:
    copied = ["data/table.csv", "linked"]
    with pytest.raises(ConfigError) as found:
        check_mirror_paths(settings(**{kind: {field: place}}), where=lambda key: f"f:{key}", copied=copied)
    messages.check(found.value)
    assert (
        found.value.setting == f"mirrors.{kind}.{field}" and found.value.where == f"f:mirrors.{kind}.{field}"
    )


def test_the_usual_places_are_looked_at_too() -> None:
    both = settings(csv=True, tensorboard=True)
    check_mirror_paths(both, where=lambda key: None, copied=["Model/Runner.py"])
    check_mirror_paths(settings(csv=False), where=lambda key: None, copied=["metrics.csv"])
    with pytest.raises(ConfigError, match=r"mirrors\.tensorboard\.folder.*'tensorboard'.*f:3"):
        check_mirror_paths(
            both, where=lambda key: "f:3" if key == "mirrors.tensorboard" else None, copied=["tensorboard/x"]
        )


def test_the_key_is_that_of_the_contract() -> None:
    one = parse_dlnest_settings({**VALUES, "roost": {"mirrors": {"csv": {"file": "records/x.csv"}}}})
    with pytest.raises(ConfigError) as found:
        check_mirror_paths(one, where=lambda key: None, copied=[])
    assert found.value.setting == "roost.mirrors.csv.file"
