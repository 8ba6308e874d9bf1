from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal

from roost.base.errors import TrainingError
from roost.config import objects
from roost.package import records
from roost.train.model.module_state import ModuleState
from roost.worker import train_task
from tests.messages import Messages
from tests.project.projects import RUNNER, project
from tests.worker.causes.scenes import known, of, texts, unknown
from tests.worker.test_train_task import Quiet, session

NAN = float("nan")


def broken() -> object:
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, NAN)
    return ModuleState(model).check_finite()


def anomaly() -> None:
    x = torch.zeros(1, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        torch.sqrt(x * 0).mul(0).sum().backward()


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_where_it_came_up_for_real(messages: Messages) -> None:
    for raises, words in (
        (broken, "weights"),
        (
            # torch.compile, in a test before this one, switches the validation off.
            lambda: Normal(torch.tensor([NAN]), torch.ones(1), validate_args=True),
            "Normal .*loc",
        ),
        (
            lambda: Categorical(logits=torch.tensor([[NAN, 1.0]]), validate_args=True),
            "Categorical .*logits",
        ),
        (anomaly, "gradient .*SqrtBackward0"),
        (lambda: int(NAN), "NaN"),
        (lambda: int(float("inf")), "NaN"),
    ):
        cause = known(of(raises))
        assert re.search(words, cause.description) and "learning rate" in cause.fix
        messages.check(texts(cause))


def recorded(tmp_path: Path, *losses: float, **others: float) -> Path:
    package = project(tmp_path)
    writer = records.RecordsWriter(package.path / "records" / "1.jsonl", session=1, start_step=0)
    for number, loss in enumerate(losses, 1):
        writer.row(number * 10, 1, {"train/loss": loss, **others})
    writer.close()
    return package.path


def test_since_when(tmp_path: Path, messages: Messages) -> None:
    cause = known(of(broken), recorded(tmp_path, 1.5, NAN, 0.25, NAN, float("inf"), lr=0.1))
    assert re.search("train/loss .*inf .*step 40 .*step 30: 0.25, .* 0.1", cause.description)
    messages.check(cause.description)


def test_from_the_first_row_on_and_without_a_rate(tmp_path: Path, messages: Messages) -> None:
    first = known(of(broken), recorded(tmp_path / "a", NAN)).description
    assert "train/loss" in first and "step 10" in first
    messages.check(first)
    assert known(of(broken), recorded(tmp_path / "b", 1.0, NAN)).description.endswith("step 20 (step 10: 1)")


def test_a_row_that_is_not_finite_for_real(tmp_path: Path) -> None:
    package = project(tmp_path, runner=RUNNER.replace("return nn", "return float('nan') * nn"), log_every=1)
    with pytest.raises(TrainingError, match=r"train/loss .*step 1\b") as found:
        train_task.train(package, session(package), Quiet())  # type: ignore[arg-type]
    objects.unload_project(package.path)
    assert "step 1 (epoch 1, batch 1," in str(found.value)
    assert unknown(found.value, package.path), "it names its step, there is nothing to add"
    error = TrainingError("train/loss is nan in the row of step 1")
    words = known(error, package.path).description
    assert words.startswith("train/loss ") and "nan" in words and "step 1," in words
    assert unknown(error), "nor is there without the record"


def test_what_is_set_already_is_no_advice(tmp_path: Path) -> None:
    clipped = {"main": {"class": "torch.optim.SGD", "lr": 0.1, "max_grad_norm": 1.0}}
    package = project(tmp_path, optimizers=clipped, on_non_finite="skip").path
    fix = known(of(broken), package).fix
    assert "learning rate" in fix and "max_grad_norm" not in fix and "on_non_finite" not in fix
    assert "max_grad_norm" in known(of(broken)).fix and "on_non_finite" in known(of(broken)).fix


def test_another_loss_than_that_of_the_training(tmp_path: Path) -> None:
    package = recorded(tmp_path, 1.0, **{"valid/loss": NAN, "valid/accuracy": NAN})
    words = known(of(broken), package).description
    assert "valid/loss" in words and "step 10" in words and "valid/accuracy" not in words


def test_a_loss_that_is_fine_is_not_blamed(tmp_path: Path, messages: Messages) -> None:
    cause = known(of(broken), recorded(tmp_path, NAN, 1.0))
    assert "train/loss" not in cause.description and "step" not in cause.description
    messages.check(cause.description)


def test_what_only_sounds_like_it(tmp_path: Path) -> None:
    package = recorded(tmp_path, 1.0, NAN)
    for error in (
        of(lambda: Normal(torch.zeros(1), -torch.ones(1), validate_args=True)),  # invalid, and not NaN
        of(lambda: int("nan")),
        ValueError("nan"),
        KeyError("x"),
    ):
        assert unknown(error, package), "whatever the loss is"
