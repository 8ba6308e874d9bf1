"""Merging files and overrides, and the origin of each setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from roost.base.errors import ConfigError, NotFound
from roost.config.layers import Config, load, load_files
from roost.config.values.nested_values import ABSENT, merge
from roost.config.values.overrides import apply_overrides
from tests.config.values.test_nested_values import trees
from tests.messages import Messages


def project(folder: Path, **files: str) -> Path:
    """Writes files (``model__base`` is model/base.yaml) and gives the root one, config.yaml."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder / "config.yaml"


def refusal(root: Path, *overrides: str, tuning: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(root, tuning=tuning, overrides=overrides)
    return str(caught.value)


@pytest.fixture
def layered(tmp_path: Path) -> Config:
    root = project(
        tmp_path,
        config="include: [model.yaml, data.yaml]\nseed: 5\ndata:\n  batch_size: 64\nmodel: {width: 3}\n",
        model="model: {width: 1, depth: 2}\nbatch: low\ndata: {batch_size: 1}\n",
        data="batch: high\ndata:\n  num_workers: 2\n",
        tune="seed: 6\nmodel:\n  depth: 9\n",
    )
    return load(root, tuning=tmp_path / "tune.yaml", overrides=["data.batch_size=8", "+model.name=x"])


def test_the_order_of_layers(layered: Config) -> None:
    assert layered.values["seed"] == 6
    assert layered.values["batch"] == "high"
    assert layered.values["model"] == {"width": 3, "depth": 9, "name": "x"}
    assert layered.values["data"]["batch_size"] == 8
    assert layered.values["data"]["num_workers"] == 2
    assert layered.values["data"]["shuffle"] is True
    assert "include" not in layered.values


def test_provenance_names_the_layer_that_set_a_key_last(layered: Config) -> None:
    expected = {
        "seed": "tune.yaml:1", "batch": "data.yaml:1", "model.width": "config.yaml:5",
        "model.depth": "tune.yaml:3", "model.name": "command line", "data.batch_size": "command line",
        "data.num_workers": "data.yaml:3", "data.shuffle": "default", "save_root": "default",
    }  # fmt: skip
    assert {key: layered.provenance[key] for key in expected} == expected
    assert set(layered.provenance) >= {"log_every", "checkpoint.every"}
    assert "data" not in layered.provenance


def test_explain_goes_from_lowest_to_highest(layered: Config) -> None:
    assert layered.explain("data.batch_size") == [
        ("model.yaml:3", 1), ("config.yaml:4", 64), ("command line", 8),
    ]  # fmt: skip
    assert layered.explain("data.prefetch") == [("default", 2)]
    assert layered.explain("model") == [
        ("model.yaml:1", {"width": 1, "depth": 2}), ("config.yaml:5", {"width": 3}),
        ("tune.yaml:2", {"depth": 9}), ("command line", {"name": "x"}),
    ]  # fmt: skip
    assert layered.explain("nothing.here") == []


def test_where_is_the_last_place_or_the_section_around(layered: Config) -> None:
    assert layered.where("model.depth") == "tune.yaml:3"
    assert layered.where("data.batch_size") == "command line"
    assert layered.where("data") == layered.where("data.shuffle") == "config.yaml:3"
    assert layered.where("model.heads") == "tune.yaml:2"
    assert layered.where("save_root") is None
    assert layered.where("nothing") is None


def test_files_are_absolute_and_complete(layered: Config) -> None:
    assert layered.path.is_absolute()
    names = [file.name for file in layered.files]
    assert names == ["config.yaml", "model.yaml", "data.yaml", "tune.yaml"]
    assert all(file.is_absolute() and file.exists() for file in layered.files)


def test_where_knows_the_line_of_a_list_entry(tmp_path: Path) -> None:
    config = load(project(tmp_path, config="checkpoint:\n  best:\n  - {monitor: a,\n     mode: min}\n"))
    assert config.where("checkpoint.best.0.mode") == "config.yaml:4"
    assert config.where("checkpoint.best.0.top_k") == "config.yaml:3"
    assert config.explain("checkpoint.best.0.mode") == [("config.yaml:4", "min")]


def test_defaults_hold_what_a_person_wants_to_see(tmp_path: Path) -> None:
    config = load(project(tmp_path, config="a: 1\n"))
    values = config.values
    assert values["a"] == 1 and values["save_root"] == "runs" and values["log_every"] == "10/ep"
    assert values["checkpoint"] == {
        "every": "1ep", "asynchronous": True, "fast": 2, "slow": 0, "slow_every": 100, "held": 1,
    }  # fmt: skip
    empty = {"max_epochs", "evaluation_precision", "hooks", "optimizers", "early_stopping"}
    assert not empty & values.keys(), "what is empty says nothing"


def test_defaults_of_an_optional_section_come_with_the_section(tmp_path: Path) -> None:
    text = "early_stopping: {monitor: valid/loss}\noptimizers: {main: {class: x, scheduler: {class: y}}}\n"
    config = load(project(tmp_path, config=text))
    assert config.values["early_stopping"] == {
        "monitor": "valid/loss",
        "mode": "min",
        "patience": 3,
        "min_delta": 0.0,
        "min_delta_mode": "absolute",
    }
    assert config.provenance["early_stopping.patience"] == "default"
    assert config.values["optimizers"]["main"] == {
        "class": "x",
        "params": "*",
        "grad_norm_type": 2.0,
        "fused": "auto",
        "every_n_steps": 1,
        "lr_scale": 1.0,
        "scheduler": {"class": "y", "unit": "step", "warmup_steps": 0},
    }


def test_a_section_of_the_user_is_not_replaced_by_a_text(tmp_path: Path) -> None:
    root = project(tmp_path, config="model: {width: 3}\nother: {width: 4}\nmirrors: {wandb: {project: x}}\n")
    for value in ("big", "3"):
        text = refusal(root, f"model={value}")
        assert "model: is a section" in text and "model.width=" in text and f"~model +model={value}" in text
        assert load(root, overrides=["~model", f"+model={value}"]).values["model"] in ("big", 3)
    for value in ("${other}", "null", "false", "{width: 1}"):
        load(root, overrides=[f"model={value}"])
    assert load(root, overrides=["mirrors.wandb=true"]).values["mirrors"]["wandb"] is True


def test_a_section_can_be_switched_off_from_above(tmp_path: Path) -> None:
    root = project(tmp_path, config="early_stopping: {monitor: x}\n", tune="early_stopping: null\n")
    config = load(root, tuning=tmp_path / "tune.yaml")
    assert config.values["early_stopping"] is None
    assert config.provenance["early_stopping"] == "tune.yaml:1"
    assert config.explain("early_stopping.monitor") == [("config.yaml:1", "x"), ("tune.yaml:1", ABSENT)]


INCLUDED = "losses: {mse: {class: A}, mae: {class: B}}\nearly_stopping: {monitor: x}\n"


def test_a_file_removes_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(INCLUDED)
    own = "include: base.yaml\nlosses:\n  ~mse:\n  huber: {class: H}\n~early_stopping:\n"
    (tmp_path / "config.yaml").write_text(own)
    (tmp_path / "tuning.json").write_text('{"losses": {"~mae": null}}')
    found = load(tmp_path / "config.yaml", tuning=tmp_path / "tuning.json")
    assert found.values["losses"] == {"huber": {"class": "H"}} and "early_stopping" not in found.values
    assert found.explain("losses.mse.class") == [("base.yaml:1", "A"), ("config.yaml:3", ABSENT)]
    assert found.explain("losses.mae.class")[-1] == ("tuning.json:1", ABSENT)


def test_a_file_replaces_a_section_that_it_removes(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(INCLUDED)
    (tmp_path / "config.yaml").write_text("include: base.yaml\n~losses:\nlosses: {huber: {class: H}}\n")
    assert load(tmp_path / "config.yaml").values["losses"] == {"huber": {"class": "H"}}


@pytest.mark.parametrize("line", ["losses: {~mes: }", "~losses: {mse: }", "~early_stoping:"])
def test_a_removal_without_effect_is_refused(tmp_path: Path, line: str, messages: Messages) -> None:
    (tmp_path / "base.yaml").write_text(INCLUDED)
    (tmp_path / "config.yaml").write_text(f"include: base.yaml\n{line}\n")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "config.yaml")
    assert str(refused.value.where) == "config.yaml:2"
    messages.check(refused.value)


def test_includes_recurse_from_the_including_files_folder(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        config="include: conf/model.yaml\na: 1\n",
        conf__model="include: [base.yaml, ../common.yaml]\na: 2\nb: 2\n",
        conf__base="a: 3\nb: 3\nc: 3\n",
        common="c: 4\n",
    )
    config = load(root)
    assert {key: config.values[key] for key in "abc"} == {"a": 1, "b": 2, "c": 4}
    assert config.provenance["b"] == "conf/model.yaml:3"
    assert config.provenance["c"] == "common.yaml:1"
    assert [label for label, _ in config.explain("b")] == ["conf/base.yaml:2", "conf/model.yaml:3"]


def test_what_a_tuning_file_includes_is_above_the_root(tmp_path: Path) -> None:
    root = project(tmp_path, config="a: 1\nb: 1\n", tune="include: [big.yaml]\nb: 3\n", big="a: 2\nb: 2\n")
    config = load(root, tuning=tmp_path / "tune.yaml")
    assert (config.values["a"], config.values["b"]) == (2, 3)


def test_a_file_that_two_files_include(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        config="include: [x.yaml, y.yaml]\n",
        x="include: z.yaml\na: 1\n",
        y="include: z.yaml\n",
        z="a: 2\n",
    )
    config = load(root)
    assert config.values["a"] == 2
    assert [file.name for file in config.files] == ["config.yaml", "x.yaml", "z.yaml", "y.yaml"]


def test_json_and_yaml_include_each_other(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"include": ["low.yaml"],\n"a": 1}')
    (tmp_path / "low.yaml").write_text("a: 0\nb: 1e-3\n")
    config = load(tmp_path / "config.json")
    assert config.provenance["a"] == "config.json:2"
    assert config.values["b"] == 0.001


def test_a_cycle_shows_its_chain(tmp_path: Path, messages: Messages) -> None:
    root = project(tmp_path, config="include: a.yaml\n", a="x: 1\ninclude: [b.yaml]\n", b="include: a.yaml\n")
    message = refusal(root)
    messages.check(message)
    assert "config.yaml -> a.yaml -> b.yaml -> a.yaml" in message and "b.yaml:1" in message
    assert "config.yaml -> config.yaml" in refusal(project(tmp_path, config="include: config.yaml\n"))


def test_a_cycle_through_a_link_is_seen(tmp_path: Path, messages: Messages) -> None:
    root = project(tmp_path, config="include: link.yaml\n")
    (tmp_path / "link.yaml").symlink_to("config.yaml")
    message = refusal(root)
    messages.check(message)
    assert "config.yaml -> link.yaml" in message


def test_bad_includes(tmp_path: Path, messages: Messages) -> None:
    message = refusal(project(tmp_path, config="a: 1\ninclude:\n- none.yaml\n"))
    messages.check(message)
    assert "none.yaml" in message and "config.yaml:3" in message
    message = refusal(project(tmp_path, config="include: [1]\n"))
    messages.check(message)
    assert "config.yaml:1" in message and "[1]" in message
    message = refusal(project(tmp_path, config="include: x.toml\n"))
    messages.check(message)
    assert "x.toml" in message


def test_includes_cannot_multiply(tmp_path: Path, messages: Messages) -> None:
    files = {f"f{i}": f"include: [f{i + 1}.yaml, f{i + 1}.yaml]\n" for i in range(20)}
    root = project(tmp_path, config="include: f0.yaml\n", f20="a: 1\n", **files)
    message = refusal(root)
    messages.check(message)
    assert "256" in message
    deep = {f"d{i}": f"include: d{i + 1}.yaml\n" for i in range(70)}
    root = project(tmp_path, config="include: d0.yaml\n", d70="a: 1\n", **deep)
    message = refusal(root)
    messages.check(message)
    assert "64" in message


def test_files_named_on_the_command_line_are_not_found(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        load(tmp_path / "config.yaml")
    messages.check(refused.value)
    assert "config.yaml" in str(refused.value)
    root = project(tmp_path, config="a: 1\n")
    with pytest.raises(NotFound) as refused:
        load(root, tuning=tmp_path / "tune.yaml")
    messages.check(refused.value)
    assert "tune.yaml" in str(refused.value)


def test_overrides_are_checked_against_the_merged_files(tmp_path: Path, messages: Messages) -> None:
    root = project(tmp_path, config="include: low.yaml\n", low="width: 1\n")
    assert load(root, overrides=["width=2"]).values["width"] == 2
    message = refusal(root, "with=2")
    messages.check(message)
    assert "'width'" in message and "+with=2" in message


def test_explain_shows_what_was_taken_away(tmp_path: Path) -> None:
    config = load(project(tmp_path, config="a: {b: 1, c: 2}\n"), overrides=["~a.b", "~seed"])
    assert config.values["a"] == {"c": 2}
    assert "seed" not in config.values
    assert config.explain("a.b") == [("config.yaml:1", 1), ("command line", ABSENT)]
    assert config.explain("a.c") == [("config.yaml:1", 2)]
    assert repr(ABSENT) == "(not set)"


@settings(max_examples=30, deadline=None)
@given(low=trees, root=trees, tuning=trees)
def test_every_leaf_has_the_label_of_the_highest_layer_that_holds_it(
    tmp_path_factory: pytest.TempPathFactory,
    low: dict[str, Any],
    root: dict[str, Any],
    tuning: dict[str, Any],
) -> None:
    folder = tmp_path_factory.mktemp("layers")
    for name, tree in {"low": low, "config": {"include": "low.json", **root}, "tune": tuning}.items():
        (folder / f"{name}.json").write_text(json.dumps(tree))
    config = load(folder / "config.json", tuning=folder / "tune.json")
    own = {key: value for key, value in config.values.items() if key in "abcd"}
    assert own == merge(merge(low, root), tuning)
    for key, label in config.provenance.items():
        said = config.explain(key)
        value: Any = config.values
        for name in key.split("."):
            value = value[name]
        assert said[-1] == (label, value)


def test_locations_are_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p" / "configs").mkdir(parents=True)
    (tmp_path / "p" / "configs" / "small.yaml").write_text("include: ../base.yaml\nseed: 1\n")
    (tmp_path / "p" / "base.yaml").write_text("width: 1\n")
    places = {"p": ("configs/small.yaml:2", "base.yaml:1"), "p/configs": ("small.yaml:2", "../base.yaml:1"),
              ".": ("p/configs/small.yaml:2", "p/base.yaml:1")}  # fmt: skip
    for folder, labels in places.items():
        monkeypatch.chdir(tmp_path / folder)
        found = load(tmp_path / "p" / "configs" / "small.yaml")
        assert (found.where("seed"), found.where("width")) == labels
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rmdir()
    assert load(tmp_path / "p" / "configs" / "small.yaml").where("seed") == "small.yaml:2"


def test_files_are_read_once_for_many_command_lines(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\nmine: {a: 1}\n")
    files = load_files(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").unlink()
    changed, plain = files.config(["seed=7", "~mine.a"]), files.config()
    assert (changed.values["seed"], changed.values["mine"]) == (7, {})
    assert (plain.values["seed"], plain.values["mine"]) == (1, {"a": 1})
    assert (changed.where("seed"), plain.where("seed")) == ("command line", "config.yaml:1")


@pytest.mark.parametrize("name", ["loop.yaml", "above.yaml"])
def test_a_link_that_leads_to_itself(tmp_path: Path, name: str, messages: Messages) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "above.yaml").write_text("include: loop.yaml\n")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / name)
    messages.check(refused.value)


@pytest.mark.parametrize("override", ['model="a\\0b"', 'save_root="\\u0000"', "model=a\0b"])
def test_no_text_has_nul(tmp_path: Path, override: str, messages: Messages) -> None:
    (tmp_path / "config.yaml").write_text("model: x\nsave_root: runs\n")
    with pytest.raises(ConfigError, match=r"NUL|printable|character") as refused:
        load(tmp_path / "config.yaml", overrides=[override])
    messages.check(refused.value)
    (tmp_path / "config.yaml").write_text('model: {files: ["a\\0b"]}\n')
    with pytest.raises(ConfigError, match="NUL") as refused:
        load(tmp_path / "config.yaml")
    messages.check(refused.value)


def test_roost_names_its_own_settings_in_both_contracts(tmp_path: Path) -> None:
    """So that what a command adds to the overrides means the same in both."""
    root = project(tmp_path, config="seed: 1\n")
    assert load(root, overrides=["roost.seed=2", "roost.limits.grace=9s"]).values["seed"] == 2
    limits = {"limits": {"grace": "9s"}}
    assert apply_overrides(limits, ["roost.limits.grace=8s"]) == {"limits": {"grace": "8s"}}
    assert "'sead'" in refusal(root, "roost.sead=2")
    own = project(tmp_path, config="roost: {seed: 5}\nseed: 1\n")
    found = load(own, overrides=["roost.seed=2"]).values
    assert (found["roost"], found["seed"]) == ({"seed": 2}, 1)
    assert "roost.limits.grace" in refusal(own, "roost.limits.grace=9s")
