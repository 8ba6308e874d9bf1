from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from roost.base.errors import ConfigError, ContractError
from roost.train import seeding
from roost.train.hook import Hook
from roost.train.hooks import Averaging, Validate
from roost.train.trainer import Trainer
from tests.train.parts import MLP, Points, Still, bits, built, loader, plain, weights

EMA = partial(Averaging, "ema", decay=0.8)


class Draws(MLP):
    """Whose metrics depend on what is drawn."""

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        values = super().evaluate(batch)
        return {**values, "loss": values["loss"] + torch.rand(len(values["loss"])), "drawn": torch.rand(())}


def measured(*hooks: Hook, kind: type[MLP] = Draws, until: Any = 5, sets: Any = ("valid",)) -> Trainer:
    loaders = {name: loader(Points(9), 4, shuffle=False) for name in sets}
    trainer = plain(built(kind), Still(), hooks, until=until, loaders=loaders)
    trainer.fit()
    return trainer


def test_both_are_measured_with_the_same_data_and_random_numbers() -> None:
    trainer = measured(EMA())
    before, own = seeding.rng_state(), weights(trainer.runner)
    results = trainer.evaluate()
    assert bits(seeding.rng_state()) == bits(before) and weights(trainer.runner) == own
    names = ("loss", "accuracy", "drawn")
    assert list(results) == [f"valid/{name}" for name in names] + [f"valid/ema/{name}" for name in names]
    assert results["valid/ema/drawn"] == results["valid/drawn"]
    assert results["valid/ema/loss"] != results["valid/loss"]
    average = trainer.averages.pop("ema")
    assert {f"valid/{name}": results[f"valid/{name}"] for name in names} == trainer.evaluate()
    trainer.runner.load_state_dict(average.state_dict()["weights"])
    assert {f"valid/{name}": results[f"valid/ema/{name}"] for name in names} == trainer.evaluate()


def test_several_sets_and_averages() -> None:
    trainer = measured(EMA(), Averaging("slow"), sets=("valid/a", "valid/b"))
    expected = {f"valid/{s}/{m}" for s in "ab" for m in ("loss", "accuracy", "drawn")}
    for name in ("ema", "slow"):
        expected |= {f"valid/{name}/{s}/{m}" for s in "ab" for m in ("loss", "accuracy", "drawn")}
    assert trainer.evaluate().keys() == expected == trainer.probe("valid")
    assert "valid/ema/a/loss" in trainer.evaluate("valid/a")


def test_one_without_validation_is_not_measured() -> None:
    assert not any("ema" in name for name in measured(Averaging(validate=False)).evaluate())


def test_before_its_first_update_it_is_the_weights() -> None:
    results = measured(Averaging(start=100)).evaluate()
    for name in ("loss", "accuracy", "drawn"):
        assert results[f"valid/ema/{name}"] == results[f"valid/{name}"]


def test_the_name_of_a_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"averages\.noisy: is the name of a set, too: valid/noisy/loss"):
        measured(Averaging("noisy"), sets=("valid/clean", "valid/noisy"))
    measured(Averaging("noisy", validate=False), sets=("valid/clean", "valid/noisy"))


@pytest.mark.parametrize("probes", [True, False])
def test_a_metric_that_is_called_like_one_of_the_average_is_refused(probes: bool) -> None:
    class Doubles(MLP):
        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            return {"loss": torch.ones(()), "ema/loss": torch.ones(())}

    with pytest.raises(ContractError, match=r"valid/ema/loss is a metric that evaluate\(\) gives, and"):
        measured(EMA(), Validate("1", probes=probes), kind=Doubles)
