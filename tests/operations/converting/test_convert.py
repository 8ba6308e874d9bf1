"""The project that is written: nothing is overwritten, nothing half; and weights."""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from roost.base.errors import CheckpointError, ConfigError, NotFound, Refused
from roost.config import layers, settings
from roost.operations.converting.convert import ConvertRequest, convert
from roost.worker.results import convert_weights
from tests.messages import Messages
from tests.operations.converting.configs import MINIMAL, SQUARES, SQUEEZE, json_config, recipe


def request(tmp_path: Path, **more: Any) -> ConvertRequest:
    config = recipe(tmp_path, more.pop("text", MINIMAL))
    return ConvertRequest(trainer="speechain", config=config, output=tmp_path / "out", **more)


def test_the_config_is_one_of_roost(tmp_path: Path) -> None:
    squeeze = json_config(tmp_path, SQUEEZE, "CornerNet_Squeeze")
    requests = [
        request(tmp_path),
        ConvertRequest(trainer="cornernet", config=squeeze, output=tmp_path / "squeeze"),
    ]
    for one in requests:
        project = convert(one)
        config = layers.load(project.path / "config.yaml")
        assert settings.parse_settings(config.values).runner == "Runner.py:Runner"
        report = (project.path / "conversion.md").read_text()
        assert all(f"- `{name}`: {why}\n" in report for name, why in project.without_counterpart)
        assert sorted(path.name for path in project.path.iterdir()) == project.files


def test_a_value_that_roost_refuses_is_shown_with_its_place(tmp_path: Path, messages: Messages) -> None:
    text = f"accum_grad: 1\nseed: 1\nft_factor: -1\n{MINIMAL}"
    with pytest.raises(ConfigError) as error:
        convert(request(tmp_path, text=text))
    assert error.value.setting == "optimizers.main.lr_scale" and ":3" in str(error.value.where)
    messages.check(error.value)
    assert not (tmp_path / "out").exists()


def test_the_folder_is_named_after_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = convert(ConvertRequest(trainer="speechain", config=recipe(tmp_path, MINIMAL)))
    assert project.path == tmp_path / "100-bpe_tiny"
    assert project.next_commands[:2] == ["cd 100-bpe_tiny", "roost check config.yaml"]


def test_nothing_is_overwritten(tmp_path: Path, messages: Messages) -> None:
    convert(request(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(Refused) as error:
        convert(request(tmp_path))
    messages.check(error.value)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def test_files_of_others_stay(tmp_path: Path) -> None:
    """A folder that has other files may be converted into: the checkout, for example."""
    out = tmp_path / "out"
    (out / "core" / "models").mkdir(parents=True)
    config = json_config(out, SQUARES)
    project = convert(ConvertRequest(trainer="cornernet", config=config, output=out))
    assert (out / "core").is_dir() and not any(line.startswith("cp ") for line in project.next_commands)


def test_a_file_in_place_of_the_folder(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(Refused) as error:
        convert(request(tmp_path))
    messages.check(error.value)


def test_another_trainer(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as error:
        convert(ConvertRequest(trainer="speechian", config=tmp_path / "x.yaml"))
    messages.check(error.value)


# --- weights ----------------------------------------------------------------------------------------------

STATE = {"encoder.weight": torch.arange(6.0).reshape(2, 3), "encoder.steps": torch.tensor(3)}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the program that reads weights run here: in a process of its own, as in the other tests, it would
    import torch for each file."""

    def run(command: list[str], *, input: str, **_: bool) -> subprocess.CompletedProcess[str]:
        assert command[1:] == ["-P", "-m", convert_weights.__name__]
        monkeypatch.setattr(sys, "stdin", io.StringIO(input))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            convert_weights.main()
        return subprocess.CompletedProcess(command, 0, output.getvalue(), "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.usefixtures("in_this_process")
def test_weights_of_speechain(tmp_path: Path) -> None:
    """Of a model file (.pth, .mdl), with the prefix of its DDP, or in an old checkpoint.pth."""
    for number, content in enumerate(
        [STATE, {f"module.{name}": value for name, value in STATE.items()}, {"latest_model": STATE, "x": 1}]
    ):
        file = tmp_path / f"{number}" / "model.mdl"
        file.parent.mkdir()
        torch.save(content, file)
        convert(request(file.parent, weights=file))
        found = load_file(file.parent / "out" / "weights.safetensors")
        assert {name.removeprefix("model."): value.tolist() for name, value in found.items()} == {
            name: value.tolist() for name, value in STATE.items()
        }
        config = layers.load(file.parent / "out" / "config.yaml")
        assert config.values["init_from"] == "weights.safetensors"


def test_weights_of_cornernet(tmp_path: Path) -> None:
    file = tmp_path / "Squares_500.pkl"
    torch.save({"module.net.1.weight": torch.ones(2, 64)}, file)
    config = json_config(tmp_path, SQUARES)
    out = tmp_path / "out"
    project = convert(ConvertRequest(trainer="cornernet", config=config, output=out, weights=file))
    assert list(load_file(out / "weights.safetensors")) == ["net.net.1.weight"]
    assert project.weights is not None and project.weights.numbers == 128


class Harmful:
    """Pickles as a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_objects_in_weights_are_loaded_only_on_trust(tmp_path: Path, messages: Messages) -> None:
    file, mark = tmp_path / "model.pth", tmp_path / "ran"
    torch.save({"model": STATE, "monitor": Harmful(mark), "pi": pickle.dumps(math.pi)}, file)
    with pytest.raises(Refused) as error:
        convert(request(tmp_path, weights=file))
    assert not mark.exists() and not (tmp_path / "out").exists()
    messages.check(error.value)
    project = convert(request(tmp_path, weights=file, trust=True))
    assert mark.exists() and project.weights is not None and project.weights.tensors == 2


@pytest.mark.usefixtures("in_this_process")
def test_a_whole_model_is_read_on_trust(tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    torch.save(torch.nn.Linear(2, 1), file)
    convert(request(tmp_path, weights=file, trust=True))
    assert sorted(load_file(tmp_path / "out" / "weights.safetensors")) == ["model.bias", "model.weight"]


@pytest.mark.usefixtures("in_this_process")
def test_weights_that_are_none(tmp_path: Path, messages: Messages) -> None:
    file = tmp_path / "model.pth"
    with pytest.raises(NotFound):
        convert(request(tmp_path, weights=file))
    for content in (b"PK\x03\x04 and no more", b"text"):
        file.write_bytes(content)
        with pytest.raises(CheckpointError) as error:
            convert(request(tmp_path, weights=file))
        messages.check(str(error.value).partition(";")[0])
        assert not (tmp_path / "out").exists()
    torch.save({"a": STATE}, file)
    with pytest.raises(CheckpointError):
        convert(request(tmp_path, weights=file))
    assert convert(request(tmp_path, weights=file, entry="a")).weights is not None
