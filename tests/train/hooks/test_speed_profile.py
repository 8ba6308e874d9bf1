from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

from roost.package.results.profiles import profile_record
from roost.package.results.profiles.bottlenecks import find_bottlenecks
from roost.train.hook import Hook
from roost.train.hooks import Profile, SpeedProfile
from roost.train.step.stepper import Stepper
from tests.train.parts import MLP, Crash, CrashAt, Points, Still, bits, built, plain, weights


def hooks(folder: Path, *, first: int = 1, seconds: float = 60.0) -> list[Hook]:
    trace = Profile(folder, start_step=first, steps=2)
    return [trace, SpeedProfile(folder, trace, seconds=seconds, project=Path(__file__).parent, session=3)]


def recorded(package: Path) -> profile_record.ProfileRecord:
    found = profile_record.read(package)
    assert found is not None
    return found.record


class Waits(Still):
    """Each sample waits: on a disk, say."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(0.01)  # not in place of an event: it is what is measured
        return super().__getitem__(index)


class Computes(Still):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        sum(range(200_000))
        return super().__getitem__(index)


class Slow(Hook):
    def on_step(self, trainer: Any) -> None:
        sum(range(1_000_000))


@pytest.mark.parametrize(("dataset", "kind"), [(Waits(), "reading"), (Computes(), "transform")])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_set_is_named_with_its_line(dataset: Still, kind: str, workers: int, tmp_path: Path) -> None:
    folder = tmp_path / "profile" / "3"
    trainer = plain(built(MLP), dataset, hooks(folder), until=30)
    trainer.loaders["train"].num_workers = workers
    assert trainer.fit() == "finished"
    record = recorded(tmp_path)
    assert (record.first_step, record.last_step, record.session) == (4, 30, 3)
    assert record.samples > 0 and record.num_workers == workers
    found = find_bottlenecks(record)[0]
    assert found.kind == kind and "__getitem__ test_speed_profile.py" in found.text


def test_a_slow_hook_is_named(tmp_path: Path) -> None:
    plain(built(MLP), Still(), [*hooks(tmp_path / "profile" / "3"), Slow()], until=20).fit()
    record = recorded(tmp_path)
    assert record.calls["Slow"] == 17
    assert find_bottlenecks(record)[0].text.startswith("Slow takes")


def test_the_picture_has_the_parts_and_the_own_lines(tmp_path: Path) -> None:
    plain(built(MLP), Waits(), hooks(tmp_path / "profile" / "3"), until=20).fit()
    root = ElementTree.parse(tmp_path / "profile" / "3" / "flame.svg").getroot()
    texts = [one.text or "" for one in root.iter() if one.tag.endswith("}text")]
    tips = [one.text or "" for one in root.iter() if one.tag.endswith("}title")]
    assert any(text.startswith("data ") for text in texts)
    assert any("__getitem__  " in tip and "test_speed_profile.py:" in tip for tip in tips)
    assert not any(one.tag.endswith("}script") for one in root.iter())


def test_training_is_the_same_with_and_without_it(tmp_path: Path) -> None:
    made = []
    for chosen in ([], hooks(tmp_path / "profile" / "3")):
        runner = built(MLP)
        stepper = Stepper(torch.optim.AdamW(runner.parameters(), lr=0.1))
        trainer = plain(runner, Points(), chosen, until=12, stepper=stepper)
        trainer.fit()
        made.append(
            (weights(runner), bits(stepper.state_dict()), bits(trainer.parts()["rank-0"].state_dict()))
        )
    assert made[0] == made[1]
    assert recorded(tmp_path).steps == 9


def test_it_ends_after_its_time_and_leaves_nothing_behind(tmp_path: Path) -> None:
    trainer = plain(built(MLP), Still(), hooks(tmp_path / "profile" / "3", seconds=1e-9), until=12)
    take_step = trainer.take_step
    trainer.fit()
    assert recorded(tmp_path).steps == 1
    assert trainer.agenda.times is None and trainer.stepper.timing.data_cpu is None
    assert trainer.take_step is take_step and trainer.loaders["train"].worker_stacks is None


def test_a_session_that_fails_has_its_profile(tmp_path: Path) -> None:
    trainer = plain(built(MLP), Still(), [*hooks(tmp_path / "profile" / "3"), CrashAt(9)], until=12)
    with pytest.raises(Crash):
        trainer.fit()
    assert recorded(tmp_path).last_step >= 8


def test_a_session_that_ends_before_it_has_none(tmp_path: Path) -> None:
    plain(built(MLP), Still(), hooks(tmp_path / "profile" / "3"), until=3).fit()
    assert profile_record.read(tmp_path) is None


def test_an_error_is_printed_and_training_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "profile" / "3"

    class Blocks(Hook):
        def on_step(self, trainer: Any) -> None:
            if trainer.progress.step == 5:
                (folder / "flame.svg").mkdir(parents=True)

    assert plain(built(MLP), Still(), [*hooks(folder), Blocks()], until=8).fit() == "finished"
    assert "no profile: " in capsys.readouterr().out


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"format": 2, "first_step": 1, "last_step": 2}'])
def test_a_damaged_record_is_none(body: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "profile" / "1"
    folder.mkdir(parents=True)
    (folder / "profile.json").write_bytes(body)
    assert profile_record.read(tmp_path) is None and profile_record.read(tmp_path / "none") is None
