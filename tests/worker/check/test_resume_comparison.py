from __future__ import annotations

from typing import Any

import pytest
import torch

from roost.base.errors import CheckpointError
from roost.worker.check.resume_comparison import differing, fingerprints
from tests.messages import Messages


def states(**changed: Any) -> dict[str, Any]:
    model = {"weight": torch.arange(3.0), "frozen": [], "rate": 0.1, **changed}
    return {"model": model, "trainer": {"hooks": {"Best": {"best": [1]}}, "seconds": object()}}


def test_the_same_and_another() -> None:
    same = fingerprints(states())
    assert differing(same, fingerprints(states())) == []
    assert "trainer.Best.best.0" in same
    tensor = torch.arange(3.0)
    tensor[1] = torch.nextafter(tensor[1], torch.tensor(9.0))
    assert differing(same, fingerprints(states(weight=tensor))) == ["model.weight"]
    assert "model.weight" in differing(same, fingerprints(states(weight=torch.arange(3.0).double())))
    assert differing(same, fingerprints(states(rate=0.1 + 1e-18))) == []
    assert differing(same, fingerprints(states(rate=0.2))) == ["model.rate"]
    assert "model.frozen.0" in differing(same, fingerprints(states(frozen=["a"])))


def test_what_no_checkpoint_can_hold(messages: Messages) -> None:
    with pytest.raises(CheckpointError, match="weight") as refused:
        fingerprints(states(weight=object()))
    messages.check(refused.value)
