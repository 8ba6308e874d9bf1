"""The settings that runs of both contracts have."""

from __future__ import annotations

import pytest

from roost.base.errors import ConfigError
from roost.config.run_settings import ExecutionSettings, RunSettings, check_execution, check_saves
from roost.config.sections.limits import LimitSettings
from roost.config.sections.remote import RemoteSettings
from roost.config.settings import parse_settings

NATIVE = {"runner": "Runner.py:Runner", "dataset": "Dataset.py:Dataset", "max_epochs": 1}


def location(key: str) -> str:
    return f"here:{key}"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (ExecutionSettings(max_time="soon"), "max_time"),
        (ExecutionSettings(rank_timeout="1"), "rank_timeout"),
        (ExecutionSettings(log_every="often"), "log_every"),
        (ExecutionSettings(devices=[]), "devices"),
        (ExecutionSettings(devices=[1, 1]), "devices"),
        (ExecutionSettings(limits=LimitSettings(stall_timeout="x")), "limits.stall_timeout"),
        (ExecutionSettings(remote=RemoteSettings(url="/store", every="0s")), "remote.every"),
        (ExecutionSettings(remote=RemoteSettings(url="/store", wait="no")), "remote.wait"),
    ],
)
def test_an_error_names_the_key_in_its_section(settings: ExecutionSettings, key: str) -> None:
    for section, whole in (("", key), ("roost", f"roost.{key}")):
        with pytest.raises(ConfigError) as refused:
            check_execution(settings, location, section=section)
        assert (refused.value.setting, str(refused.value.where)) == (whole, f"here:{whole}")


def test_each_of_several_intervals_is_checked() -> None:
    check_saves(["1ep", "10min"], "checkpoint.every", location)
    with pytest.raises(ConfigError) as refused:
        check_saves(["1ep", "seldom"], "checkpoint.every", location)
    assert refused.value.setting == "checkpoint.every.1"


def test_native_settings_are_run_settings() -> None:
    settings: RunSettings = parse_settings(NATIVE)
    assert settings.trains
    assert settings.key("devices") == "devices"
    assert not parse_settings({**NATIVE, "step_mode": "dry"}).trains
