from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from roost.base import state_tree
from roost.project.dlnest import run_state
from roost.project.dlnest.run_state import SavedPart
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.progress import Progress


def test_a_copy_does_not_change_and_keeps_tied_tensors_tied() -> None:
    weight = torch.zeros(3, requires_grad=True)
    state = {"a": weight, "b": [weight.detach()], "log": {"loss": [1.0]}, "made": weight * 2}
    copied = run_state.host_copy(state)
    with torch.no_grad():
        weight += 1
    state["log"]["loss"].append(2.0)  # type: ignore[index]
    assert copied["a"].tolist() == [0.0] * 3 and copied["log"] == {"loss": [1.0]}
    assert copied["a"].data_ptr() == copied["b"][0].data_ptr() != copied["made"].data_ptr()
    assert len(state_tree.pack(copied)[1]) == len(state_tree.pack(state)[1])


def test_a_checkpoint_is_read_before_anything_is_built(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, asynchronous=False)
    assert run_state.read(checkpoints, ALONE)[0] is None
    parts = {"dlnest": {"log_dict": {}}, "loop": {"phase": 1}, "rank-0": {"rng": {}}}
    checkpoints.save({name: SavedPart(state) for name, state in parts.items()}, Progress(step=4))
    manifest, states, lines = run_state.read(Checkpoints(tmp_path), ALONE)
    assert manifest is not None and manifest.step == 4 and states == parts and not lines


def test_a_rank_has_its_own_log_and_rank_0s_runner() -> None:
    states = {
        "dlnest": {"runner": {0: torch.ones(1)}, "log_dict": {"loss": [0.0]}, "life_cycle": {"best": 1}},
        "rank-1": {"project": {"log_dict": {"loss": [1.0]}}},
        "rank-2": {},
    }
    found = run_state.project_state(states, Ranks(rank=1, world_size=3))
    assert found["log_dict"] == {"loss": [1.0]} and found["life_cycle"] == {"best": 1}
    assert found["runner"] is states["dlnest"]["runner"]
    found["log_dict"]["loss"].append(2.0)
    assert states["rank-1"]["project"]["log_dict"] == {"loss": [1.0]}
    assert run_state.project_state(states, Ranks(rank=2, world_size=3))["log_dict"] == {"loss": [0.0]}


def test_a_state_that_contains_itself_is_copied() -> None:
    state: dict[str, Any] = {"weight": torch.ones(1), "list": []}
    state["self"] = state
    state["list"].append(state["list"])
    copied = run_state.host_copy(state)
    assert copied["self"] is copied is not state and copied["list"][0] is copied["list"]
    assert copied["weight"].data_ptr() != state["weight"].data_ptr()


def test_a_rank_that_no_checkpoint_knows_has_the_attributes_of_rank_0(tmp_path: Path) -> None:
    """A meter that the rest of the epoch needs; but random numbers of its own."""
    parts = {
        "dlnest": {"log_dict": {}},
        "loop": {"phase": 3},
        "rank-0": {"attributes": {"LifeCycle.mean.count": {"value": 11}, "Dataset.rng": {"generator": 1}}},
        "rank-1": {"attributes": {"LifeCycle.mean.count": {"value": 12}}},
    }
    Checkpoints(tmp_path, asynchronous=False).save(
        {name: SavedPart(state) for name, state in parts.items()}, Progress(step=4)
    )
    found = {}
    for number in (0, 1, 2):
        ranks = Ranks(rank=number, world_size=3)
        _, states, _ = run_state.read(Checkpoints(tmp_path), ranks)
        found[number] = run_state._saved_attributes(states, ranks)
    assert found[0] == parts["rank-0"]["attributes"] and found[1] == parts["rank-1"]["attributes"]
    assert found[2] == {"LifeCycle.mean.count": {"value": 11}}
