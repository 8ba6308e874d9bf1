"""Options that a config declares: keys of the user's, checked and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config import layers, options
from roost.config.settings import declared, typed
from roost.config.structs.configured import OptionSettings

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
    typed(found.values, where=found.where)
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
    ("override", "message"),
    [
        (
            "channels=x",
            "channels: expected a whole number >= 1 and <= 512 (channels of the first convolution); received "
            "'x' (at command line)",
        ),
        ("channels=0", "channels: expected a whole number >= 1 and <= 512 "),
        ("channels=513", "received 513 (at command line)"),
        ("channels=true", "received True"),
        ("channels=16.0", "To mend it: write 16"),
        ("channels=1.5", "received 1.5"),
        ("rate=-0.1", "rate: expected a number >= 0; received -0.1"),
        ("rate=.nan", "rate: expected a number >= 0; received nan"),
        (
            "act=gel",
            "act: expected 'relu' or 'gelu'; received 'gel' (at command line). To mend it: did you mean",
        ),
        ("flip=1", "flip: expected true or false; received 1"),
        ("widths=3", "widths: expected a list; received 3"),
        (
            "who=3",
            "who: expected a text; received 3 (at command line). To mend it: quote it, as in `who: '3'`",
        ),
        (
            "~who",
            "who: has no default, and nobody gives it (at config.yaml:10). To mend it: give who=..., a text",
        ),
        ("who=null", "who: has no default, and nobody gives it"),
        (
            "chanels=3",
            "there is no setting 'chanels' (at command line). To mend it: did you mean 'channels'?",
        ),
        ("options.channels.default=0", "channels: expected a whole number >= 1 and <= 512"),
        ("options.channels.default=a", "received 'a' (at command line)"),
        ("+options.seed={type: int}", "options: 'seed' is a setting of roost's"),
        ("+options.include={type: int}", "options: 'include' is a setting of roost's"),
        (
            "+options.act.min=3",
            "options.act.min: is for int and float, and this option is of type str; received 3",
        ),
        (
            "options.act.choices=[relu, 3]",
            "options.act.choices.1: is no value of type str; received 3 (at command line). To mend it: quote",
        ),
        ("options.channels.min=513", "options.channels.min: is above max: 512; received 513"),
        ("options.act.type=text", "options.act.type: expected 'int' or 'float' or"),
        ("options.act.helps=text", "options.act"),
    ],
)
def test_one_clear_error(override: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, override)


def test_a_key_that_is_nearly_an_option(tmp_path: Path) -> None:
    message = refusal(tmp_path, config=CONFIG + "channel: 3\n")
    assert (
        "there is no setting 'channel' (at config.yaml:13). To mend it: did you mean 'channels'?" in message
    )
    message = refusal(tmp_path, config=CONFIG.replace("who: me", "woh: me"))
    assert "there is no setting 'woh'" in message and "'who'" in message


def test_a_wrong_default_is_blamed_where_it_stands(tmp_path: Path) -> None:
    message = refusal(tmp_path, config=CONFIG.replace("default: 32", "default: many"))
    assert message.startswith("channels: expected a whole number") and "(at config.yaml:5)" in message


def test_what_is_given_without_a_plus_and_declared_on_the_command_line(tmp_path: Path) -> None:
    values = checked(tmp_path, "+options.depth={type: int, default: 2}", "who=you")
    assert (values["depth"], values["who"]) == (2, "you")
    assert checked(tmp_path, "options.channels.default=3")["channels"] == 3
    bare = CONFIG.replace("who: me\n", "")
    assert checked(tmp_path, "who=you", config=bare)["who"] == "you", (
        "one without a default needs no + either"
    )


def test_a_reference_is_checked_as_what_it_refers_to(tmp_path: Path) -> None:
    from roost.config.interpolation import resolve

    found = load(tmp_path, "channels=${size}", "+size=a")
    with pytest.raises(ConfigError, match=r"channels: expected a whole number.*received 'a'"):
        typed(resolve(found.values, {}), where=found.where)


def test_declared(tmp_path: Path) -> None:
    found = declared(load(tmp_path).values)
    assert list(found) == ["channels", "rate", "act", "flip", "widths", "who"]
    assert [options.takes(one) for one in found.values()] == [
        "a whole number >= 1 and <= 512", "a number >= 0", "'relu' or 'gelu'", "true or false", "a list",
        "a text",
    ]  # fmt: skip
    assert declared({"max_epochs": 3}) == {} and options.names({"options": 3}) == []
    assert options.takes(OptionSettings(type="float", max=0.5)) == "a number <= 0.5"
