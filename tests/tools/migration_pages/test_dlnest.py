"""Nothing of DLNest is left out, and the example is a config of its contract."""

from __future__ import annotations

import re
from pathlib import Path

from roost.config import layers
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.config.run_settings import Contract
from roost.serve.routes.dlnest_routes import ROUTES
from tools.migration_pages.dlnest import PAGE

KEYS = """save_root runner_name dataset_name life_cycle_name checkpoint_args max_ckpt_in_slow_track
dilation_in_slow_track max_ckpt_in_fast_track max_ckpt_in_consistent_track root_file_path runner_file_path
dataset_file_path life_cycle_file_path other_file_paths child_jsons model_file_path model_name plugins"""
DECISIONS = """needVisualize needValidation commandLineOutput needSaveModel holdThisCheckpoint
needContinueTrain"""
PARTS = "All DatasetInit ModelInit Train OneEpoch ModelOneStep Visualize Validation SaveModel"
RUNNER = """init initLog initOptimizer runOneStep visualize validationInit validateABatch validationAnalyze
validate _reduceMean _reduceSum register"""
VERBS = """new run continue analyze showTask showDevices showDL showAN runExp del changeDevices exit clear
watch withdraw"""


def names(heading: str) -> list[str]:
    (group,) = (group for group in PAGE.groups if group.heading == heading)
    return [re.split(r"[( ,]", option.name)[0].rpartition(".")[2] for option in group.options]


def test_every_key_method_verb_and_route_is_there() -> None:
    assert set(KEYS.split()) <= set(names("Keys of a config"))
    life_cycle = names("LifeCycle")
    assert set(DECISIONS.split()) <= set(life_cycle)
    assert {f"{letter}{part}" for letter in "BA" for part in PARTS.split()} <= set(life_cycle)
    assert {"init", "getSampler"} <= set(names("Dataset")) and set(RUNNER.split()) <= set(names("Runner"))
    (verbs,) = (group for group in PAGE.groups if group.heading == "Verbs")
    assert set(VERBS.split()) <= {word for one in verbs.options for word in re.findall(r"\w+", one.name)}
    (routes,) = (group for group in PAGE.groups if group.heading == "Routes")
    assert [one.name.split()[1] for one in routes.options] == [route.path for route in ROUTES]


def test_every_method_says_what_it_does() -> None:
    assert [one for group in PAGE.groups for one in group.options if not one.keys and not one.commands]
    for group in PAGE.groups[1:4]:
        assert all(one.note for one in group.options)


def test_the_example_is_a_config(tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.text, re.DOTALL)
    (tmp_path / "root_config.json").write_text(text)
    loaded = layers.load(tmp_path / "root_config.json")
    settings = parse_dlnest_settings(loaded.values, where=loaded.where)
    assert loaded.contract is Contract.DLNEST
    assert (settings.seed, settings.checkpoint.fast) == (3, 2) and loaded.values["seed"] == "a key of yours"
