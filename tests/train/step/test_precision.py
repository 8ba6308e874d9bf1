from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.base import state_tree
from roost.base.errors import ConfigError, TrainingError
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hooks import Records, Save
from roost.train.optim.optimizer import Optim
from roost.train.step import precision
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import MLP, Gan, Still, bits, built, plain

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("asked", "kind"), [(32, torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_forward_computes_in_them_again_and_again(asked: Any, kind: torch.dtype) -> None:
    around, one = precision.autocast_context(asked, CPU), torch.ones(2, 2)
    for _ in range(2):
        with around:
            assert (one @ one).dtype is kind
        assert (one @ one).dtype is torch.float32


def test_only_fp16_is_scaled() -> None:
    assert isinstance(precision.make_scaler("fp16", CPU), torch.amp.GradScaler)
    assert precision.make_scaler("bf16", CPU) is None and precision.make_scaler(32, CPU) is None


def test_what_a_device_must_compute_with() -> None:
    for asked in (32, "bf16", "fp16"):
        precision.require_supported(asked, CPU)  # type: ignore[arg-type]
    precision.require_supported(32, torch.device("meta"))


@pytest.mark.parametrize("asked", ["bf16", "fp16"])
def test_a_device_that_does_not(asked: Any, messages: Messages) -> None:
    with pytest.raises(ConfigError, match=rf"meta\b.*'{asked}'.*\b32\b") as refused:
        precision.require_supported(
            asked, torch.device("meta"), setting="evaluation_precision", where="config.yaml:3"
        )
    assert (refused.value.setting, refused.value.where) == ("evaluation_precision", "config.yaml:3")
    messages.check(refused.value)


def test_a_gpu_without_bf16_is_offered_fp16(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    """The one thing here that no machine without such a card can show for real."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(ConfigError, match=r"Tesla T4.*\bbf16\b.*\bfp16\b.*\b32\b") as refused:
        precision.require_supported("bf16", torch.device("cuda"))
    messages.check(refused.value)


# --- the scaler -------------------------------------------------------------------------------------------


def line() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 1)


def steep(module: nn.Module) -> Any:
    """A loss whose gradient overflows in fp16 until the scale is 2^10."""
    return lambda batch: (module(batch).float() * 60).mean()


X = torch.ones(4, 3)


def scale_of(stepper: Stepper, name: str = "main") -> float:
    scaler = stepper.optimizers[name].scaler
    assert scaler is not None
    return scaler.get_scale()


def flag(values: Any) -> float:
    return float(values["skipped"])


def test_an_overflow_is_a_skipped_step_with_a_smaller_scale() -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), precision="fp16")
    before = bits(module.state_dict())
    assert flag(stepper.run(steep(module), [X])) == 1.0
    assert bits(module.state_dict()) == before and scale_of(stepper) == 2.0**15
    while flag(stepper.run(steep(module), [X])):
        assert bits(module.state_dict()) == before
    assert bits(module.state_dict()) != before and scale_of(stepper) < 2.0**15


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_fused_sgd_may_overflow_in_its_first_step(momentum: float) -> None:
    """Torch's own scaler lets it take what lies in the memory for its momentum: NaN in this test."""

    def trained(fused: bool) -> list[Tensor]:
        module = line()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum, fused=fused)
        stepper = Stepper(optimizer, precision="fp16")
        torch.use_deterministic_algorithms(True)
        try:
            skipped = [flag(stepper.run(steep(module), [X])) for _ in range(12)]
        finally:
            torch.use_deterministic_algorithms(False)
        assert skipped[0] and not skipped[-1]
        return [p.detach() for p in module.parameters()]

    torch.testing.assert_close(trained(fused=True), trained(fused=False))


def test_a_loss_that_is_not_finite_is_no_overflow() -> None:
    """It must remain visible, as it ends the run: a smaller scale does not help."""
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), precision="fp16")
    before = bits(module.state_dict())
    values = stepper.run(lambda batch: module(batch).mean() * float("nan"), [X])
    assert flag(values) == 0.0 and bits(module.state_dict()) == before


def test_an_optimizer_without_gradients_does_nothing() -> None:
    """As in 32 bits. With several on one loss the others move."""
    one, other = line(), line()
    stepper = Stepper(
        {name: torch.optim.SGD(m.parameters(), lr=0.1) for name, m in (("a", one), ("b", other))},
        precision="fp16",
    )
    before = bits(one.state_dict()), bits(other.state_dict())
    values = stepper.run(lambda batch: other(batch).float().mean() / 8, [X], optimizer=("a", "b"))
    assert flag(values) == 0.0
    assert bits(one.state_dict()) == before[0] and bits(other.state_dict()) != before[1]
    values = stepper.run(lambda batch: other(batch).float().mean() / 8, [X], optimizer="a")
    assert "skipped" not in values and bits(one.state_dict()) == before[0]


def test_several_optimizers_on_one_loss_share_the_scaler_of_the_first() -> None:
    """Also in a step in which only the second moves."""
    one, other = line(), line()
    stepper = Stepper(
        {
            "a": Optim(torch.optim.SGD(one.parameters(), lr=0.01), every_n_steps=2),
            "b": torch.optim.SGD(other.parameters(), lr=0.01),
        },
        precision="fp16",
    )

    def loss(batch: Tensor) -> Tensor:
        return (0.1 * one(batch).float() + 1000 * other(batch).float()).mean()

    moved = []
    for _ in range(16):
        before = bits(one.state_dict()), bits(other.state_dict())
        values = stepper.run(loss, [X], optimizer=("a", "b"))
        moved.append((bits(one.state_dict()) != before[0], bits(other.state_dict()) != before[1]))
        assert flag(values) == 0.0 or not moved[-1][1]
    assert moved[0] == (False, False) and moved[1] == (True, False), "the first does not overflow"
    assert moved[-2:] == [(False, True), (True, True)]
    assert scale_of(stepper, "a") < 2.0**16 == scale_of(stepper, "b")


class Uneven(Gan):
    """Whose first optimizer overflows, and whose second does not."""

    def d_loss(self, batch: Any) -> Tensor:
        return 1e4 * super().d_loss(batch).float()


def test_a_step_is_skipped_when_one_of_its_optimizers_is_kept_back() -> None:
    runner = built(Uneven)
    optims = {
        name: Optim(torch.optim.SGD(getattr(runner, name).parameters(), lr=1e-9), max_grad_norm=1.0)
        for name in ("d", "g")
    }
    trainer = plain(runner, Still(), until=20, stepper=Stepper(optims, precision="fp16"))
    trainer.fit()
    row = trainer.events.row()
    halved = {name: 16 - math.log2(scale_of(trainer.stepper, name)) for name in optims}
    assert row["skipped"] == halved["d"] > halved["g"] and math.isfinite(row["d_grad_norm"])


def test_a_step_that_fails_halfway_leaves_a_scaler_that_works() -> None:
    module = line()
    optim = Optim(torch.optim.SGD(module.parameters(), lr=0.1), max_grad_norm=1.0, grad_norm_type=2.0)
    stepper = Stepper(optim, precision="fp16")

    def clip() -> Tensor:
        raise torch.OutOfMemoryError("no memory left to clip in")

    optim.clip = clip  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        stepper.run(lambda batch: module(batch).float().mean() / 8, [X])
    assert not stepper.has_stepped
    del optim.clip
    assert flag(stepper.run(lambda batch: module(batch).float().mean() / 8, [X])) == 0.0


class Spoiled(MLP):
    """From its ninth step on the loss is NaN, or its gradient alone."""

    where: str

    def loss(self, batch: Any) -> Any:
        loss = super().loss(batch)["loss"]
        if self.progress.step < 8:
            return loss
        return loss * float("nan") if self.where == "loss" else loss + (self.net[0].weight * 0).sum().sqrt()


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_run_in_fp16_does_not_go_on_without_moving(where: str, tmp_path: Path, messages: Messages) -> None:
    runner = built(Spoiled)
    runner.where = where
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), precision="fp16")
    hooks, checkpoints = [Records(tmp_path / "records", 5), Save(50)], Checkpoints(tmp_path / "Checkpoints")
    trainer = plain(runner, Still(), hooks, until=400, stepper=stepper, checkpoints=checkpoints)
    message = {
        "loss": r"train/loss.*\bnan\b.*\bstep 10\b.*\bstep 9\b",
        "gradient": r"^precision: .*'main'.*\bbf16\b.*\b32\b",
    }
    with pytest.raises(TrainingError, match=message[where]) as raised:
        trainer.fit()
    messages.check(raised.value)


def test_a_stepper_goes_on_exactly() -> None:
    """With its scale on the way down, and with good steps counted."""

    def made() -> tuple[nn.Linear, Stepper]:
        module = line()
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        return module, Stepper(Optim(optimizer, max_grad_norm=0.5), precision="fp16")

    whole, first = made(), made()
    for _ in range(12):
        whole[1].run(steep(whole[0]), [X])
    for steps in (3, 5, 4):
        for _ in range(steps):
            first[1].run(steep(first[0]), [X])
        state = state_tree.unpack(
            *state_tree.pack({"m": dict(first[0].state_dict()), "s": first[1].state_dict()})
        )
        first = made()
        first[0].load_state_dict(state["m"])
        first[1].load_state_dict(state["s"])
    assert bits(first[0].state_dict()) == bits(whole[0].state_dict())
    assert bits(first[1].state_dict()) == bits(whole[1].state_dict())
