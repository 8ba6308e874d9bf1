"""What a fork, or a forced session, has otherwise of its optimizers gets into the state it goes on from."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from roost.package.checkpoints.checkpoint import Manifest
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.optim.optimizer_overrides import OptimizerOverrides
from roost.train.optim.schedulers import Warmup
from tests.messages import Messages

STEPS, EPOCHS = 7, 2
OF_ANOTHER_RUN = Manifest(id=3, step=STEPS, epoch=EPOCHS, batch=0, session=0)


def optim(lr: float, schedule: str = "", *, warmup: int = 0, unit: str = "step", **arguments: Any) -> Optim:
    torch.manual_seed(0)
    made = torch.optim.Adam(torch.nn.Linear(2, 1).parameters(), lr=lr, **arguments)
    scheduler: Any = None
    if schedule == "cosine":
        scheduler = lr_scheduler.CosineAnnealingLR(made, T_max=20)
    elif schedule == "step":
        scheduler = lr_scheduler.StepLR(made, step_size=2, gamma=0.5)
    elif schedule == "plateau":
        scheduler = lr_scheduler.ReduceLROnPlateau(made, patience=0, factor=0.1)
    if warmup:
        scheduler = Warmup(scheduler, made, warmup, waits=unit == "step")
    return Optim(made, scheduler, unit=unit)


def trained(one: Optim) -> dict[str, Any]:
    """Its state after some steps, as `Schedule` steps it."""
    for _ in range(STEPS):
        for parameter in one.parameters:
            parameter.grad = torch.ones_like(parameter)
        one.optimizer.step()
        if isinstance(one.scheduler, Warmup):
            one.scheduler.advance_warmup()
        if one.scheduler is not None and one.unit == "step":
            one.scheduler.step()
    for _ in range(EPOCHS if one.unit == "epoch" else 0):
        one.scheduler.step()
    if one.unit == "validation":
        one.scheduler.step(1.0)
        one.scheduler.step(2.0)
    return copy.deepcopy(one.state_dict())


def gone_on(old: Optim, new: Optim, *changed: str, info: Manifest = OF_ANOTHER_RUN) -> dict[str, Any]:
    """The state that a fork with ``new`` goes on with."""
    renewed = OptimizerOverrides({"main": new}, lambda of: changed if of.session == 0 else ())
    states = {"optimizers": {"main": trained(old)}}
    renewed(info, states)
    new.load_state_dict(states["optimizers"]["main"])
    return new.state_dict()


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"schedule": "cosine"},
        {"schedule": "cosine", "warmup": 3},
        {"schedule": "step", "unit": "epoch"},
        {"schedule": "step", "unit": "epoch", "warmup": 9},
    ],
)
def test_another_learning_rate_is_as_if_it_had_been_so(kind: dict[str, Any]) -> None:
    old, whole = optim(0.1, **kind), trained(optim(0.3, **kind))
    found = gone_on(old, optim(0.3, **kind), "optimizers.main.lr")
    assert found["scheduler"] == whole["scheduler"]
    assert found["optimizer"]["param_groups"] == whole["optimizer"]["param_groups"]
    saved = old.state_dict()["optimizer"]["state"]
    assert all(torch.equal(found["optimizer"]["state"][at]["exp_avg"], saved[at]["exp_avg"]) for at in saved)


def test_a_schedule_that_comes_is_changed_or_goes() -> None:
    for before, after in (("", "cosine"), ("step", "cosine"), ("cosine", "")):
        found = gone_on(optim(0.1, before), optim(0.1, after), "optimizers.main.scheduler.class")
        whole = trained(optim(0.1, after))
        assert found["scheduler"] == whole["scheduler"]
        assert found["optimizer"]["param_groups"] == whole["optimizer"]["param_groups"]
    found = gone_on(
        optim(0.1, "cosine"), optim(0.1, "cosine", warmup=3), "optimizers.main.scheduler.warmup_steps"
    )
    assert found["scheduler"]["climbed"] == 4
    found = gone_on(
        optim(0.1, "cosine", warmup=30), optim(0.1, "cosine"), "optimizers.main.scheduler.warmup_steps"
    )
    assert LR_SCALE not in found["optimizer"]["param_groups"][0]


def test_one_that_follows_validations_begins_anew_and_says_so(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    kind = {"schedule": "plateau", "unit": "validation"}
    found = gone_on(optim(0.1, **kind), optim(0.3, **kind), "optimizers.main.lr")
    assert found["optimizer"]["param_groups"][0]["lr"] == 0.3 and found["scheduler"]["num_bad_epochs"] == 0
    messages.check(capsys.readouterr().out)


def test_what_is_no_rate_leaves_the_schedule_alone() -> None:
    old = optim(0.1, "plateau", unit="validation")
    new = optim(0.1, "plateau", unit="validation", weight_decay=0.5)
    found = gone_on(old, new, "optimizers.main.weight_decay", "seed")
    (group,) = found["optimizer"]["param_groups"]
    assert group["weight_decay"] == 0.5 and group["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("changed", "session"),
    [("model.width", 0), ("optimizers.main.max_grad_norm", 0), ("optimizers.main.lr", 2)],
)
def test_what_is_loaded_as_it_is(changed: str, session: int) -> None:
    """Nothing of it was changed, or it is a checkpoint of the fork itself."""
    info = Manifest(id=4, step=STEPS, epoch=EPOCHS, batch=0, session=session)
    old = optim(0.1, "cosine")
    found = gone_on(old, optim(0.3, "cosine"), changed, info=info)
    assert found["optimizer"]["param_groups"] == old.state_dict()["optimizer"]["param_groups"]
    assert found["scheduler"] == old.state_dict()["scheduler"]


def test_what_it_works_with_is_as_before() -> None:
    old, new = optim(0.1, "cosine"), optim(0.3, "cosine")
    renewed = OptimizerOverrides({"main": new}, lambda _: ["optimizers.main.lr"])
    trained(new)
    before = copy.deepcopy(new.state_dict())
    renewed(OF_ANOTHER_RUN, {"optimizers": {"main": trained(old)}})
    after = new.state_dict()
    assert after["scheduler"] == before["scheduler"]
    assert after["optimizer"]["param_groups"] == before["optimizer"]["param_groups"]
