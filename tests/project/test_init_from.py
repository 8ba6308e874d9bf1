"""``init_from`` from config to module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roost.base.errors import CheckpointError, ConfigError, NotFound
from roost.config.settings import Settings, parse_settings
from roost.project import init_from as initial
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.progress import Progress
from tests.messages import Messages


def net(value: float = 0.0) -> nn.Module:
    made = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 1)})
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(value)
    return made


def saved(path: Path, value: float, *, only: str = "", **more: Any) -> Path:
    state = {name: one for name, one in net(value).state_dict().items() if name.startswith(only)}
    torch.save({**state, **more}, path)
    return path


def load(folder: Path, init_from: Any) -> tuple[list[float], list[str]]:
    """The values of a.weight and b.weight, and what was said."""
    module = net(-1.0)
    began = initial.load(module, settings(init_from), package=folder / "package", project=folder, where=where)
    return [float(module[name].weight[0, 0].detach()) for name in "ab"], list(initial.report_lines(began))


def settings(init_from: Any) -> Settings:
    return parse_settings({"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, "init_from": init_from})


def where(key: str) -> str | None:
    return "config.yaml:7" if key.startswith("init_from") else None


def test_without_it_nothing_is_done(tmp_path: Path) -> None:
    assert load(tmp_path, None) == ([-1, -1], [])


def test_a_file(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1)
    values, said = load(tmp_path, "w.pt")
    assert values == [1, 1]
    (line,) = said
    assert line.startswith("init_from: w.pt (") and "4 of 4" in line
    messages.check(line)


def test_what_was_copied_comes_before_what_stands_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    saved(tmp_path / "w.pt", 1)
    saved(tmp_path / "package" / "w.pt", 2)
    assert load(tmp_path, "w.pt")[0] == [2, 2]
    assert load(tmp_path, str(tmp_path / "w.pt"))[0] == [1, 1]


def test_several_a_later_one_wins(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "all.pt", 1)
    saved(tmp_path / "b.pt", 2, only="b.")
    saved(tmp_path / "a.pt", 3, only="a.")
    assert load(tmp_path, ["all.pt", "b.pt"])[0] == [1, 2]
    assert load(tmp_path, ["b.pt", {"path": "all.pt", "mapping": {"b.": None}}])[0] == [1, 2]
    assert load(tmp_path, ["a.pt", "b.pt"])[0] == [3, 2], "together they have all"
    with pytest.raises(ConfigError, match=r"2 of 4 .*b.weight, b.bias") as refused:
        load(tmp_path, ["a.pt", "a.pt"])
    assert refused.value.setting == "init_from"
    messages.check(refused.value)
    assert load(tmp_path, ["a.pt", {"path": "a.pt", "strict": False}])[0] == [3, -1]


def test_strict_refuses_with_the_whole_report_and_changes_nothing(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1, only="a.", x=torch.ones(1))
    module = net(-1.0)
    with pytest.raises(
        ConfigError, match=r"2 of 4 .*b.weight, b.bias.* x; .*mapping.*strict: false"
    ) as raised:
        initial.load(module, settings("w.pt"), package=tmp_path, project=tmp_path, where=where)
    assert raised.value.setting == "init_from"
    messages.check(raised.value)
    assert raised.value.where == "config.yaml:7" and 'mapping: {"x": null}' in str(raised.value.fix)
    assert float(module["a"].weight.detach().max()) == -1
    values, said = load(tmp_path, {"path": "w.pt", "strict": False})
    assert values == [1, -1]
    assert said[1].endswith(": b.weight, b.bias") and said[2].endswith(": x") and len(said) == 3
    messages.check("\n".join(said))


@pytest.mark.parametrize("strict", [True, False])
def test_weights_of_another_model(tmp_path: Path, strict: bool, messages: Messages) -> None:
    torch.save({"c.weight": torch.ones(9), "d": torch.ones(3)}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"4.*4.*2") as refused:
        load(tmp_path, {"path": "w.pt", "strict": strict})
    assert refused.value.setting == "init_from"
    messages.check(refused.value)


def test_another_model_is_not_to_be_left_out_name_by_name(tmp_path: Path, messages: Messages) -> None:
    torch.save({"c.weight": torch.ones(9)}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match="`mapping`") as refused:
        load(tmp_path, "w.pt")
    messages.check(refused.value)


def test_numbers_that_are_none_are_told(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1, **{"b.bias": torch.tensor([float("nan")])})
    _, said = load(tmp_path, "w.pt")
    assert len(said) == 2 and said[1].endswith(": b.bias") and "NaN" in said[1]
    messages.check(said[1])


def test_a_mapping_is_proposed(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1, only="a.")
    state = torch.load(tmp_path / "w.pt", weights_only=True)
    theirs = {f"back.{name}": one for name, one in state.items()}
    torch.save({**theirs, "head": torch.ones(3)}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r'mapping: \{"back\.": ""\}.* 2') as refused:
        load(tmp_path, "w.pt")
    messages.check(refused.value)
    mapped = {"path": "w.pt", "mapping": {"back.": "", "head": None}, "strict": False}
    assert load(tmp_path, mapped)[0] == [1, -1]


def test_a_mapping_that_fits_nothing_is_an_error(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1)
    with pytest.raises(ConfigError, match=r"'bone\.'") as refused:
        load(tmp_path, {"path": "w.pt", "mapping": {"bone.": "a."}})
    messages.check(refused.value)


def test_sizes_that_differ_are_told_with_both(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1, **{"b.weight": torch.ones(7, 2)})
    with pytest.raises(ConfigError, match=r"1 .*b\.weight .*7x2 .*1x2") as refused:
        load(tmp_path, "w.pt")
    messages.check(refused.value)
    assert load(tmp_path, {"path": "w.pt", "strict": False})[0] == [1, -1]


def test_checkpoints_of_roost(tmp_path: Path, messages: Messages) -> None:
    checkpoints = Checkpoints(tmp_path / "saved")
    for value in (1.0, 2.0):
        checkpoints.save({"model": net(value)}, Progress()).wait()
    assert load(tmp_path, "saved")[0] == [2, 2]
    values, said = load(tmp_path, {"path": "saved", "checkpoint": 0})
    assert values == [1, 1] and "saved (checkpoint 0 " in said[0] and "4 of 4" in said[0]
    with pytest.raises(NotFound, match=r"checkpoint 9.*\(at config.yaml:7\)") as refused:
        load(tmp_path, {"path": "saved", "checkpoint": 9})
    assert refused.value.setting == "init_from"
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"checkpoint": "best"}, "`checkpoint`"),
        ({"average": "ema"}, "`average`"),
    ],
)
def test_what_only_packages_have(tmp_path: Path, more: dict[str, Any], said: str, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1)
    with pytest.raises(ConfigError, match=said) as refused:
        load(tmp_path, {"path": "w.pt", **more})
    messages.check(refused.value)


def test_what_only_files_have(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ConfigError, match="`entry`") as refused:
        load(tmp_path, {"path": str(tmp_path), "entry": "model"})
    messages.check(refused.value)


def test_errors_of_reading_name_the_setting(tmp_path: Path, messages: Messages) -> None:
    saved(tmp_path / "w.pt", 1)
    (tmp_path / "w.pt").write_bytes((tmp_path / "w.pt").read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"'w.pt' \(at config.yaml:7\)") as refused:
        load(tmp_path, "w.pt")
    assert refused.value.setting == "init_from"
    with pytest.raises(NotFound, match=r"'v.pt' \(at config.yaml:7\)") as refused:
        load(tmp_path, "v.pt")
    assert refused.value.setting == "init_from"
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        (tmp_path / "empty").mkdir()
        saved(tmp_path / "w.pt", 1)
        load(tmp_path, ["w.pt", "empty"])
    assert refused.value.setting == "init_from.1"
    messages.check(refused.value)


def test_what_is_kept_of_them(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", 1)
    (one,) = initial.load(net(), settings("w.pt"), package=tmp_path / "p", project=tmp_path, where=where)
    assert (one.path, one.found, one.size) == ("w.pt", str(path), path.stat().st_size)
    assert len(one.sha256) == 64 and one.loaded.startswith("4 of 4 ") and one.report == []
