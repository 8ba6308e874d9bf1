"""Recognising a config of DLNest's contract, and the order in which its files are merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.base.config_files import MAX_FILES
from roost.base.errors import ConfigError, NotFound
from roost.config import layers
from roost.config.dlnest.child_files import is_root
from roost.config.run_settings import Contract
from tests.messages import Messages


def write(folder: Path, **files: Any) -> Path:
    """Writes JSON files (``sub__a`` is sub/a.json), and returns the path of the root file."""
    for name, values in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values, indent=1))
    return folder / "root.json"


def merged(root: Path, **given: Any) -> dict[str, Any]:
    found = layers.load(root, **given)
    assert found.contract is Contract.DLNEST
    return {key: value for key, value in found.values.items() if key != "roost"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"runner_file_path": "R.py"}, True),
        ({"child_jsons": []}, True),
        ({"child_jsons": [], "include": "mine"}, True),
        ({"child_jsons": [], "runner": "Runner.py:Runner"}, False),
        ({"model_file_path": "M.py"}, True),
        ({"runner_file_path": "R.py", "include": "mine", "runner": {"lr": 1}}, True),
        ({"model_file_path": "weights.pt", "runner": "Runner.py:Runner"}, False),
        ({"model_file_path": "weights.pt", "include": "base.yaml"}, False),
        ({"model_file_path": "M.py", "life_cycle_file_path": "L.py", "runner": {"lr": 1}}, True),
        ({"dataset_file_path": "data.csv", "runner": "Runner.py:Runner"}, False),
        ({"runner": "Runner.py:Runner", "dataset": "Dataset.py:Dataset"}, False),
        ({}, False),
    ],
)
def test_what_is_of_this_contract(values: dict[str, Any], expected: bool) -> None:
    assert is_root(values) is expected


def test_a_native_config_with_such_a_key_of_its_own_stays_native(tmp_path: Path) -> None:
    root = write(tmp_path, root={"runner": "R.py:R", "dataset": "D.py:D", "model_file_path": "w.pt"})
    assert layers.load(root).contract is Contract.NATIVE


def test_later_wins_depth_first(tmp_path: Path) -> None:
    """Measured with 0.3.2: of root, c1, c1's child and c2, the last one that has a key wins."""
    root = write(
        tmp_path,
        root={"child_jsons": ["c1.json", "c2.json"], "a": 0, "b": 0, "c": 0, "d": 0},
        c1={"a": 1, "b": 1, "c": 1, "child_jsons": ["inner.json"]},
        inner={"a": "i", "b": "i"},
        c2={"a": 2},
    )
    assert merged(root) == {"a": 2, "b": "i", "c": 1, "d": 0}


def test_dicts_are_merged_and_everything_else_is_replaced(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        root={"child_jsons": ["c.json"], "d": {"x": 1, "y": {"z": 1}}, "l": [1, 2], "s": {"k": 1}, "n": 1},
        c={"d": {"y": {"w": 2}}, "l": [3], "s": 5, "n": {"now": "a dict"}},
    )
    assert merged(root) == {"d": {"x": 1, "y": {"z": 1, "w": 2}}, "l": [3], "s": 5, "n": {"now": "a dict"}}


def test_the_tuning_file_and_its_children_are_above_all(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        root={"child_jsons": ["c.json"], "a": 0, "b": 0},
        c={"a": 1, "b": 1},
        tune={"a": "t", "b": "t", "child_jsons": ["under.json"]},
        under={"b": "u"},
    )
    assert merged(root, tuning=tmp_path / "tune.json", overrides=["b=9"]) == {"a": "t", "b": 9}
    assert merged(root, tuning=tmp_path / "tune.json") == {"a": "t", "b": "u"}


def test_every_key_is_the_users(tmp_path: Path) -> None:
    """Nothing is interpolated, completed, or compared with a setting of roost."""
    own = {
        "devices": "left", "seed": None, "limits": [1], "hooks": {}, "precision": "high", "include": "me",
        "project": 3, "options": {"x": 1}, "sead": 1, "~a": None, "home": "${HOME}", "checkpoint": "a.b",
    }  # fmt: skip
    root = write(tmp_path, root={"runner_file_path": "R.py", **own})
    assert merged(root) == {"runner_file_path": "R.py", **own}


def test_a_child_is_looked_for_under_the_root_and_then_beside_its_file(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        root={"root_file_path": "code", "child_jsons": ["sub/a.json"]},
        code__a={"from": "root_file_path"},
        code__here={"here": "root_file_path"},
        sub__a={"a": "beside the root file", "child_jsons": ["here.json", "there.json"]},
        sub__here={"here": "beside its file"},
        sub__there={"there": "beside its file"},
    )
    values = merged(root)
    assert values["a"] == "beside the root file"
    assert (values["here"], values["there"]) == ("root_file_path", "beside its file")
    assert layers.load(root).notes == [
        f"here.json is read from {tmp_path / 'code/here.json'}, not {tmp_path / 'sub/here.json'}: "
        "root_file_path comes first"
    ]


def test_a_stale_root_does_not_hide_a_child(tmp_path: Path) -> None:
    root = write(tmp_path, root={"root_file_path": "/gone", "child_jsons": ["a.json"]}, a={"a": 1})
    assert merged(root)["a"] == 1


def test_yaml_children_and_their_locations(tmp_path: Path) -> None:
    root = write(tmp_path, root={"child_jsons": ["sub/c.yaml"], "lr": 1})
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/c.yaml").write_text("other: 1\nlr: 1e-3\n")
    config = layers.load(root)
    assert config.values["lr"] == 1e-3
    assert config.where("lr") == "sub/c.yaml:2"
    assert config.provenance["lr"] == "sub/c.yaml:2"
    assert [file.name for file in config.files] == ["root.json", "c.yaml"]


def test_a_file_may_be_listed_twice(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        root={"child_jsons": ["a.json", "b.json"]},
        a={"x": "a", "child_jsons": ["c.json"]},
        b={"x": "b", "child_jsons": ["c.json"]},
        c={"x": "c"},
    )
    assert merged(root) == {"x": "c"}


def test_bad_children_are_refused(tmp_path: Path, messages: Messages) -> None:
    def refusal(values: dict[str, Any], **files: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            layers.load(write(tmp_path, root=values, **files))
        return str(caught.value)

    messages.check(refusal({"child_jsons": ["a.json"]}))
    messages.check(refusal({"child_jsons": "a.json"}))
    messages.check(refusal({"child_jsons": [3]}))
    ring = refusal(
        {"child_jsons": ["c1.json"]}, c1={"child_jsons": ["c2.json"]}, c2={"child_jsons": ["c1.json"]}
    )
    messages.check(ring)
    assert "c2.json:" in ring
    messages.check(refusal({"child_jsons": ["root.json"]}))
    many = refusal({"child_jsons": ["leaf.json"] * MAX_FILES}, leaf={"a": 1})
    messages.check(many)


def test_a_circle_through_a_link_is_found(tmp_path: Path) -> None:
    write(tmp_path, root={"child_jsons": ["link.json"]})
    (tmp_path / "link.json").symlink_to("root.json")
    with pytest.raises(ConfigError, match="files list each other"):
        layers.load(tmp_path / "root.json")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        layers.load(tmp_path / "root.json")
    root = write(tmp_path, root={"child_jsons": []})
    with pytest.raises(NotFound):
        layers.load(root, tuning=tmp_path / "tune.json")
