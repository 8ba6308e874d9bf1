from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import roost
from roost.train import seeding
from roost.train.hooks import Visualize
from tests.train.hooks.test_save import Asks
from tests.train.parts import MLP, Points, Still, bits, built, loader, plain


class Shows(MLP):
    """Shows a text, a picture, numbers; draws from every generator; notes its mode."""

    def visualize(self, batch: Any) -> Any:
        self.modes = (self.training, torch.is_grad_enabled(), len(batch[0]))
        torch.rand(3)
        return {
            "samples/text": f"at {self.progress.step}",
            "weights": roost.Media("histogram", self.net[0].weight),
            "picture": roost.Media("image", torch.rand(4, 4)),
        }


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("every", "steps"), [("3", [3, 6, 8]), ("1ep", [7, 8]), (None, [])], ids=["steps", "epochs", "on request"]
)
def test_stores_what_the_runner_shows(every: Any, steps: list[int], tmp_path: Path) -> None:
    runner = built(Shows)
    loaders = {"valid/a": loader(Still(), 8, shuffle=False)}
    plain(runner, Still(), [Visualize(tmp_path, every)], until=8, loaders=loaders).fit()
    names = ("picture.png", "samples_text.txt", "weights.json")
    assert files(tmp_path) == [f"{step}/{name}" for step in steps for name in names]
    if steps:
        assert (tmp_path / "8" / "samples_text.txt").read_text() == "at 8"
        assert runner.modes == (False, False, 8)


def test_on_request_and_from_training_data_without_a_validation_set(tmp_path: Path) -> None:
    runner = built(Shows)
    plain(runner, Still(), [Asks(2, "visualize"), Visualize(tmp_path)], until=4).fit()
    assert {name.split("/")[0] for name in files(tmp_path)} == {"2"}
    assert runner.modes == (False, False, 4)


def test_training_is_the_same_with_and_without_it(tmp_path: Path) -> None:
    states = []
    for hooks in ([], [Visualize(tmp_path, 1)]):
        runner = built(Shows)
        plain(runner, Points(), hooks, until=4).fit()
        states.append(bits([dict(runner.state_dict()), seeding.rng_state()]))
    assert states[0] == states[1]


@pytest.mark.parametrize("wrong", ["raises", "no media", "no mapping"])
def test_a_picture_that_fails_is_told_and_training_goes_on(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails(MLP):
        def visualize(self, batch: Any) -> Any:
            if wrong == "raises":
                raise ZeroDivisionError("no picture")
            return {"x": object()} if wrong == "no media" else [1]

    runner = built(Fails)
    assert plain(runner, Still(), [Visualize(tmp_path, 2)], until=4).fit() == "finished"
    out, err = capsys.readouterr()
    assert out.count("visualize failed at step") == 2
    assert "Traceback" in err
    assert runner.training


def test_a_runner_that_shows_nothing_leaves_nothing(tmp_path: Path) -> None:
    plain(built(MLP), Still(), [Visualize(tmp_path, 1)], until=2).fit()
    assert files(tmp_path) == []
