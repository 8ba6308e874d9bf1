from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

import roost
from roost.base.errors import ConfigError, ContractError
from roost.train.data.batches import Interrupted
from roost.train.evaluation import split_evaluation
from roost.train.hooks import Validate, Visualize
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import MLP, Still, built, loader, plain


class Measures(roost.Runner):
    """Gives what a test wants of a batch of (x, y)."""

    def __init__(self, give: Any) -> None:
        super().__init__()
        self.give = give

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        found: Mapping[str, Tensor] = self.give(*batch)
        return found


def run(give: Any, num_samples: int = 26) -> dict[str, float]:
    return split_evaluation.evaluate_split(
        Measures(give), loader(Still(num_samples), 8, shuffle=False), "valid"
    )


def test_every_sample_counts_once() -> None:
    """Per sample, or the batch's mean, with a short last batch; in float64."""
    found = run(lambda x, y: {"each": x[:, 0], "mean": x[:, 0].mean(), "hits": y == 1, "id": y, "all": x})
    exact = math.fsum(Still().x[:, 0].double().tolist()) / 26
    assert found.keys() == {"each", "mean", "hits"}
    assert found["each"] == pytest.approx(exact, rel=1e-14)
    assert found["mean"] == pytest.approx(exact, rel=1e-6)
    assert found["hits"] == int((Still().y == 1).sum()) / 26


def test_a_million_samples_keep_their_digits() -> None:
    class Many(Still):
        def __init__(self) -> None:
            self.x, self.y = torch.full((1_000_000, 1), 0.1), torch.zeros(1_000_000)

        def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, Tensor]]:
            return [(self.x[: len(indices)], self.y[: len(indices)])]

    many = loader(Many(), 250_000, shuffle=False, collate=lambda samples: samples[0])
    found = split_evaluation.evaluate_split(Measures(lambda x, y: {"x": x[:, 0]}), many, "valid")
    assert found["x"] == pytest.approx(float(torch.tensor(0.1).double()), rel=1e-12)


def test_a_metric_of_some_batches_is_the_mean_of_those() -> None:
    found = run(lambda x, y: {"loss": y * 0.0, **({"last": y * 0 + 3.0} if len(x) < 8 else {})})
    assert found == {"loss": 0.0, "last": 3.0}


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda x, y: None, r"evaluate\(\).*None"),
        (lambda x, y: torch.tensor(0.5), r"evaluate\(\).*tensor"),
        (lambda x, y: {"loss": 1.0}, r"evaluate\(\).*\{'loss': 'float'\}"),
        (lambda x, y: {"loss": x[:3, 0]}, r"^loss: .*evaluate\(\).*\b3\b.*\b8\b"),
    ],
)
def test_what_evaluate_may_not_give(give: Any, message: str, messages: Messages) -> None:
    with pytest.raises(ContractError, match=message) as refused:
        run(give)
    messages.check(refused.value)


def test_summarize_gets_all_values_in_the_set_s_order() -> None:
    class Summarizes(MLP):
        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            x, y = batch
            return {"loss": x.mean(), "x": x, "y": y}

        def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
            assert values.keys() == {"x", "y"}, "a batch's mean is no value of a sample"
            assert torch.equal(values["x"], Still().x) and torch.equal(values["y"], Still().y)
            return {"recall": 0.75, f"of {split}": torch.tensor(2.0)}  # type: ignore[dict-item]

    found = split_evaluation.evaluate_split(
        built(Summarizes), loader(Still(), 8, shuffle=False), "valid/clean"
    )
    assert found.keys() == {"loss", "y", "recall", "of valid/clean"}
    assert (found["recall"], found["of valid/clean"]) == (0.75, 2.0)


def test_rows_of_another_shape_cannot_be_summarized(messages: Messages) -> None:
    class Sums(Measures):
        def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
            return {}

    runner = Sums(lambda x, y: {"scores": x[:, : len(x)]})
    with pytest.raises(ContractError, match=r"'scores'.*\(6,\).*\(2,\)") as refused:
        split_evaluation.evaluate_split(runner, loader(Still(26), 8, shuffle=False), "valid")
    messages.check(refused.value)


def test_values_are_kept_only_for_a_runner_that_summarizes() -> None:
    assert not split_evaluation._summarizes(built(MLP))


def test_a_stop_is_seen_between_two_batches() -> None:
    seen: list[int] = []
    with pytest.raises(Interrupted):
        split_evaluation.evaluate_split(
            Measures(lambda x, y: seen.append(len(x)) or {"x": y}),
            loader(Still(), 8, shuffle=False),
            "valid",
            stop=lambda: len(seen) == 2,
        )
    assert seen == [8, 8]


def test_empty_batches_count_in_nothing() -> None:
    numbers = itertools.count()

    def collate(samples: list[Any]) -> Any:
        return None if next(numbers) == 1 else default_collate(samples)

    found = split_evaluation.evaluate_split(
        Measures(lambda x, y: {"x": x[:, 0]}), loader(Still(), 8, shuffle=False, collate=collate), "valid"
    )
    kept = torch.cat([Still().x[:8], Still().x[16:]])[:, 0]
    assert found["x"] == pytest.approx(kept.double().mean().item(), rel=1e-12)


def test_a_split_that_gives_nothing_is_an_error(messages: Messages) -> None:
    nothing = loader(Still(), 8, shuffle=False, collate=lambda samples: None)
    with pytest.raises(ConfigError, match="valid") as refused:
        split_evaluation.evaluate_split(Measures(lambda x, y: {"x": x}), nothing, "valid")
    messages.check(refused.value)
    with pytest.raises(ConfigError) as refused:
        split_evaluation.probe_metrics(Measures(lambda x, y: {"x": x}), nothing)
    messages.check(refused.value)


def test_mode_comes_back_as_it_was_also_after_an_error() -> None:
    module = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    module[1].eval()
    with pytest.raises(KeyError), split_evaluation.evaluation_mode(module):
        assert not any(part.training for part in module.modules())
        assert not torch.is_grad_enabled()
        raise KeyError
    assert [part.training for part in module.modules()] == [True, True, False]
    assert torch.is_grad_enabled()


class Types(MLP):
    """Notes the numbers that each pass computes in."""

    def build(self) -> None:
        super().build()
        self.seen: dict[str, set[torch.dtype]] = {}

    def note(self, name: str, x: Tensor) -> None:
        self.seen.setdefault(name, set()).add(self.net[0](x).dtype)

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        self.note("loss", batch[0])
        return super().loss(batch)

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        self.note("evaluate", batch[0])
        return super().evaluate(batch)

    def visualize(self, batch: Any) -> Mapping[str, str]:
        assert self._trainer is not None
        self._trainer.evaluate("valid")
        self.note("visualize", batch[0])
        return {}


@pytest.mark.parametrize(
    ("training", "evaluating", "kind"),
    [
        (32, None, torch.float32),
        ("bf16", None, torch.bfloat16),
        ("bf16", 32, torch.float32),
        (32, "bf16", torch.bfloat16),
        ("fp16", "bf16", torch.bfloat16),
    ],
)
def test_evaluation_has_numbers_of_its_own(
    training: Any, evaluating: Any, kind: torch.dtype, tmp_path: Path
) -> None:
    """Wherever the model is called without being trained: in the probe before the first step too."""
    runner = built(Types)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), precision=training)
    trainer = plain(
        runner,
        Still(),
        [Validate("1ep"), Visualize(tmp_path, "1ep")],
        until="1ep",
        stepper=stepper,
        loaders={"valid": loader(Still(), 8, shuffle=False)},
        evaluation_precision=evaluating,
    )
    trainer.fit()
    trained = {32: torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[training]
    assert runner.seen == {"loss": {trained}, "evaluate": {kind}, "visualize": {kind}}
