"""Options that a config declares: the user's own keys, with checks and help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config import layers, user_options
from roost.config.other_tools import foreign_keys
from roost.config.sections.yaml_project import OptionSettings
from roost.config.settings import declared_options, parse_settings
from tests.messages import Messages

CONFIG = """\
runner: Runner.py:Runner
dataset: Dataset.py:Dataset
max_epochs: 3
options:
  channels: {type: int, default: 32, min: 1, max: 512, help: channels of the first convolution}
  rate: {type: float, default: 1e-3, min: 0}
  act: {type: str, default: relu, choices: [relu, gelu]}
  flip: {type: bool, default: false}
  widths: {type: list, default: [8, 8]}
  who: {type: str}
who: me
model: {channels: "${channels}"}
"""


def load(folder: Path, *overrides: str, config: str = CONFIG) -> layers.Config:
    (folder / "config.yaml").write_text(config)
    return layers.load(folder / "config.yaml", overrides=overrides)


def checked(folder: Path, *overrides: str, config: str = CONFIG) -> dict[str, Any]:
    found = load(folder, *overrides, config=config)
    parse_settings(found.values, where=found.where)
    return found.values


def refusal(folder: Path, *overrides: str, config: str = CONFIG) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(folder, *overrides, config=config)
    return str(caught.value)


def test_defaults_are_a_layer_above_those_of_roost(tmp_path: Path) -> None:
    found = load(tmp_path, "rate=2")
    assert (found.values["channels"], found.values["rate"], found.values["act"]) == (32, 2, "relu")
    assert found.provenance["channels"] == "option" and found.provenance["rate"] == "command line"
    assert found.explain("rate") == [("option", 1e-3), ("command line", 2)]
    assert found.provenance["who"] == "config.yaml:11"


def test_an_included_file_may_declare_them(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(CONFIG)
    (tmp_path / "config.yaml").write_text("include: base.yaml\nchannels: 7\n")
    assert layers.load(tmp_path / "config.yaml").explain("channels") == [("option", 32), ("config.yaml:2", 7)]


def test_every_type(tmp_path: Path) -> None:
    values = checked(tmp_path, "channels=1", "rate=3", "act=gelu", "flip=true", "widths=[]", "who='7'")
    assert [values[name] for name in ("channels", "rate", "act", "flip", "widths", "who")] == [
        1, 3, "gelu", True, [], "7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("override", "facts"),
    [
        (
            "channels=x",
            ["channels", "512", "command line", "'x'"],
        ),
        ("channels=0", ["channels", "512"]),
        ("channels=513", ["513", "command line"]),
        ("channels=true", ["channels", "True"]),
        ("channels=16.0", ["16"]),
        ("channels=1.5", ["1.5"]),
        ("rate=-0.1", ["rate", "-0.1"]),
        ("rate=.nan", ["rate", "nan"]),
        (
            "act=gel",
            ["act", "'relu'", "'gelu'", "command line", "'gel'"],
        ),
        ("flip=1", ["flip"]),
        ("widths=3", ["widths"]),
        (
            "who=3",
            ["who", "command line", "`who: '3'`"],
        ),
        (
            "~who",
            ["who", "config.yaml:10", "who="],
        ),
        ("who=null", ["who"]),
        (
            "chanels=3",
            ["'chanels'", "command line", "'channels'"],
        ),
        ("options.channels.default=0", ["channels", "512"]),
        ("options.channels.default=a", ["'a'", "command line"]),
        ("+options.seed={type: int}", ["options", "'seed'"]),
        ("+options.include={type: int}", ["options", "'include'"]),
        (
            "+options.act.min=3",
            ["options.act.min"],
        ),
        (
            "options.act.choices=[relu, 3]",
            ["options.act.choices.1", "command line"],
        ),
        ("options.channels.min=513", ["options.channels.min", "512", "513"]),
        ("options.act.type=text", ["options.act.type", "'int'", "'float'"]),
        ("options.act.helps=text", ["options.act"]),
    ],
)
def test_one_clear_error(override: str, facts: list[str], tmp_path: Path, messages: Messages) -> None:
    message = refusal(tmp_path, override)
    messages.check(message)
    assert all(fact in message for fact in facts)


def test_a_key_that_is_nearly_an_option(tmp_path: Path, messages: Messages) -> None:
    message = refusal(tmp_path, config=CONFIG + "channel: 3\n")
    messages.check(message)
    assert all(fact in message for fact in ("'channel'", "config.yaml:13", "'channels'"))
    message = refusal(tmp_path, config=CONFIG.replace("who: me", "woh: me"))
    messages.check(message)
    assert "'who'" in message and "'woh'" in message


def test_a_wrong_default_is_blamed_where_it_stands(tmp_path: Path, messages: Messages) -> None:
    message = refusal(tmp_path, config=CONFIG.replace("default: 32", "default: many"))
    messages.check(message)
    assert message.startswith("channels: ") and "config.yaml:5" in message


def test_what_is_given_without_a_plus_and_declared_on_the_command_line(tmp_path: Path) -> None:
    values = checked(tmp_path, "+options.depth={type: int, default: 2}", "who=you")
    assert (values["depth"], values["who"]) == (2, "you")
    assert checked(tmp_path, "options.channels.default=3")["channels"] == 3
    bare = CONFIG.replace("who: me\n", "")
    assert checked(tmp_path, "who=you", config=bare)["who"] == "you", (
        "one without a default needs no + either"
    )


def test_a_reference_is_checked_as_what_it_refers_to(tmp_path: Path, messages: Messages) -> None:
    from roost.config.interpolation import resolve

    found = load(tmp_path, "channels=${size}", "+size=a")
    with pytest.raises(ConfigError) as refused:
        parse_settings(resolve(found.values, {}), where=found.where)
    messages.check(refused.value)
    assert refused.value.setting == "channels" and "'a'" in str(refused.value)


def test_a_section_of_ones_own(tmp_path: Path, messages: Messages) -> None:
    declared = CONFIG + "trainer: {max_epochs: 5}\n"
    declared = declared.replace("options:\n", "options:\n  trainer: {type: dict, default: {depth: 2}}\n")
    found = load(tmp_path, "trainer.depth=3", "+trainer.wide=true", config=declared)
    foreign_keys.refuse(found)
    assert checked(tmp_path, "trainer.depth=3", config=declared)["trainer"] == {"depth": 3, "max_epochs": 5}
    assert found.values["trainer"] == {"depth": 3, "max_epochs": 5, "wide": True}
    message = refusal(tmp_path, "trainer=3", config=declared)
    messages.check(message)
    assert message.startswith("trainer: ") and "a section" in message


def test_declared(tmp_path: Path, messages: Messages) -> None:
    found = declared_options(load(tmp_path).values)
    assert list(found) == ["channels", "rate", "act", "flip", "widths", "who"]
    for one in found.values():
        messages.check(user_options.describe_values(one))
    assert "512" in user_options.describe_values(
        found["channels"]
    ) and "'gelu'" in user_options.describe_values(found["act"])
    assert declared_options({"max_epochs": 3}) == {} and user_options.names({"options": 3}) == []
    messages.check(user_options.describe_values(OptionSettings(type="float", max=0.5)))
