"""Metrics of a config: functions batch by batch, and those of a whole set."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from roost.base.errors import ContractError
from roost.project.yaml.batch_paths import BatchPath, SettingLocation
from roost.project.yaml.yaml_metrics import BatchMetric, DatasetMetric, is_dataset_metric
from tests.messages import Messages

PLACE = SettingLocation("runner.metrics.m", "config.yaml:9")
INPUTS = [BatchPath("output", PLACE), BatchPath("batch.1", PLACE)]


def measured(found: Any) -> dict[str, torch.Tensor]:
    return BatchMetric("m", lambda output: found, INPUTS[:1], True, PLACE).values({"output": None})


def test_a_function(messages: Messages) -> None:
    assert measured(torch.ones(3))["m"].shape == (3,)
    assert measured(2)["m"] == 2.0 and measured(True)["m"] == 1.0
    assert measured({"a": torch.ones(()), "b": 3}).keys() == {"m_a", "m_b"}
    for wrong in (torch.ones(3, 2), "text", None, {"a": torch.ones(1, 1)}):
        with pytest.raises(ContractError) as refused:
            measured(wrong)
        assert refused.value.setting == "runner.metrics.m"
        messages.check(refused.value)


class Sum:
    """Like a class of torchmetrics."""

    def __init__(self, gives: Any = None) -> None:
        self.gives, self.total, self.calls = gives, 0.0, 0

    def reset(self) -> None:
        self.total = 0.0

    def update(self, output: torch.Tensor, y: torch.Tensor) -> None:
        assert output.shape[:1] == y.shape
        self.calls += 1
        self.total += float(output.sum() + y.sum())

    def compute(self) -> Any:
        return self.total if self.gives is None else self.gives


def whole(metric: Sum, *batches: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    made = DatasetMetric("m", metric, INPUTS, PLACE)
    rows = [made.rows({"output": output, "batch": (None, y)}) for output, y in batches]
    assert all(tensor.dim() > 1 for one in rows for tensor in one.values()), (
        "none becomes a mean by its shape"
    )
    return made.result({name: torch.cat([one[name] for one in rows]) for name in rows[0]})


def test_a_whole_set_is_one_update() -> None:
    metric = Sum()
    metric.total = 100.0  # of an evaluation that was stopped
    batches = [(torch.ones(n, 2), torch.ones(n)) for n in (3, 3, 1)]
    assert whole(metric, *batches) == {"m": 21.0} and metric.calls == 1
    assert whole(metric, *batches) == {"m": 21.0} and metric.total == 0.0


@pytest.mark.parametrize(
    ("gives", "names"),
    [
        (torch.tensor([1.0, 2.0]), ["m_0", "m_1"]),
        (torch.tensor([3.0]), ["m"]),
        ({"a": torch.tensor(1.0), "b": [1.0, 2.0]}, ["m_a", "m_b_0", "m_b_1"]),
        ((1.0, torch.eye(2)), ["m_0", "m_1_0_0", "m_1_0_1", "m_1_1_0", "m_1_1_1"]),
    ],
)
def test_several_values(gives: Any, names: list[str]) -> None:
    assert list(whole(Sum(gives), (torch.ones(2, 2), torch.ones(2)))) == names


def test_one_clear_error(messages: Messages) -> None:
    with pytest.raises(ContractError, match="'text'") as refused:
        whole(Sum("text"), (torch.ones(2), torch.ones(2)))
    assert refused.value.setting == "runner.metrics.m"
    messages.check(refused.value)
    for output in (torch.ones(()), ["texts"], {"logits": torch.ones(2)}):
        with pytest.raises(ContractError, match="output") as refused:
            DatasetMetric("m", Sum(), INPUTS, PLACE).rows({"output": output, "batch": (None, torch.ones(2))})
        assert refused.value.setting == "runner.metrics.m"
        messages.check(refused.value)


def test_an_error_tells_the_setting(messages: Messages) -> None:
    def fails(output: Any) -> None:
        raise ValueError("own")

    with pytest.raises(ValueError, match="own") as caught:
        BatchMetric("m", fails, INPUTS[:1], True, PLACE).values({"output": None})
    (note,) = caught.value.__notes__
    assert "runner.metrics.m" in note and "config.yaml:9" in note
    with pytest.raises(TypeError) as missing:
        metric = DatasetMetric("m", Sum(), INPUTS[:1], PLACE)
        metric.result(metric.rows({"output": torch.ones(3, 2)}))
    (note,) = missing.value.__notes__
    assert "output" in note and "float32 (3, 2)" in note
    messages.check(note)


def test_what_is_like_a_class_of_torchmetrics() -> None:
    from torchmetrics import functional
    from torchmetrics.classification import MulticlassF1Score

    assert is_dataset_metric(MulticlassF1Score) and is_dataset_metric(Sum)
    assert not any(map(is_dataset_metric, (functional.accuracy, torch.nn.CrossEntropyLoss, Sum(), dict)))
