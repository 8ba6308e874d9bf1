"""The weights in a checkpoint, and the mean of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base.errors import CheckpointError, NotFound
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.worker.results import weight_mean
from roost.worker.results.weight_mean import WeightMean
from tests.messages import Messages


def info(id: int) -> Manifest:
    return Manifest(id=id, step=id * 10, epoch=0, batch=0)


def state(seed: int) -> dict[str, Any]:
    random = torch.Generator().manual_seed(seed)
    tied = torch.randn(3, 2, generator=random)
    return {
        "in.weight": tied,
        "norm.mean": torch.randn(4, generator=random).to(torch.bfloat16),
        "norm.count": torch.tensor(seed),
        "mask": torch.tensor([True, seed > 1]),
        "phase": torch.randn(2, generator=random, dtype=torch.complex64),
        "wide": torch.randn(2, generator=random, dtype=torch.float64),
        "out.weight": tied,
        "_extra_state": {"seen": seed},
    }


def mean_of(*states: dict[str, Any]) -> dict[str, Any]:
    mean = WeightMean()
    for id, one in enumerate(states):
        mean.add(info(id), one)
    return mean.weights()


def test_one_stays_as_it_is() -> None:
    one = state(1)
    found = mean_of(one)
    assert list(found) == list(one) and all(found[name] is one[name] for name in one)


def test_the_mean_in_float64_cast_back() -> None:
    states = [state(1), state(2), state(3)]
    found = mean_of(*states)
    for name in ("in.weight", "norm.mean", "wide"):
        stacked = [one[name].double() for one in states]
        expected = ((stacked[0] + stacked[1] + stacked[2]) / 3).to(states[0][name].dtype)
        assert found[name].dtype == expected.dtype and torch.equal(found[name], expected), name
    assert torch.allclose(found["phase"], sum(one["phase"] for one in states) / 3)
    assert found["norm.count"] == 1 and found["mask"].tolist() == [True, False], "those of the first"
    assert found["_extra_state"] == {"seen": 1}
    assert found["out.weight"] is found["in.weight"]
    assert weight_mean.tied_names(found) == {"out.weight": "in.weight"}
    again = [state(1), state(2), state(3)]
    assert all(torch.equal(a["wide"], b["wide"]) for a, b in zip(states, again, strict=True)), (
        "not written into"
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"more": torch.zeros(1)}, "more "),
        ({"in.weight": torch.zeros(3, 3)}, r"in\.weight .*float32 \(3, 2\) .*float32 \(3, 3\)"),
        ({"wide": torch.zeros(2)}, "wide .*float64"),
        ({"out.weight": torch.zeros(3, 2)}, ""),
        ({"wide": 3}, "wide "),
    ],
)
def test_other_weights_have_no_mean(changed: dict[str, Any], says: str, messages: Messages) -> None:
    with pytest.raises(
        CheckpointError, match=rf"checkpoints 0 \(step 0\) .*1 \(step 10\).*{says}"
    ) as refused:
        mean_of(state(1), {**state(2), **changed})
    messages.check(refused.value)


def test_what_a_checkpoint_holds(tmp_path: Path, messages: Messages) -> None:
    one = state(1)
    average = {"method": "ema", "count": 1, "weights": {"norm.mean": torch.ones(4), "wide": one["wide"] + 1}}
    hooks = {"average/ema": average, "average/late": {**average, "weights": {}}, "best": {}}
    parts = {"model": {"state": one, "hidden": {}}, "trainer": {"hooks": hooks}}
    checkpoint.write(tmp_path, parts, info(3))
    path = checkpoint.checkpoint_folder(tmp_path, 3)
    found, module = weight_mean.read_weights(path)
    assert found.id == 3 and module["hidden"] == {}
    assert torch.equal(module["state"]["wide"], one["wide"])
    averaged = weight_mean.read_weights(path, average="ema")[1]["state"]
    assert torch.equal(averaged["wide"], one["wide"] + 1)
    assert torch.equal(averaged["norm.mean"], torch.ones(4, dtype=torch.bfloat16)), (
        "of the type of the weights"
    )
    assert torch.equal(averaged["in.weight"], one["in.weight"]), "what the average does not hold"
    with pytest.raises(NotFound, match=r"'emma'.*'ema'.* ema, late") as refused:
        weight_mean.read_weights(path, average="emma")
    messages.check(refused.value)
    with pytest.raises(NotFound, match="late") as refused:
        weight_mean.read_weights(path, average="late")
    messages.check(refused.value)
