from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from roost.base.errors import ContractError
from roost.train.events import Events
from roost.train.failures.recovery import Recovery
from roost.train.optim.optimizer import Optim
from roost.train.step.nonfinite_check import NonfiniteGuard, host_waits, step_unless
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import Gan, Still, bits, built, plain
from tests.train.reads import CountsReads

NAN = float("nan")
X = torch.ones(4, 3)


class Net(nn.Module):
    """With buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("later", None)

    def forward(self, x: Tensor) -> Tensor:
        self.hidden += 1
        found: Tensor = self.norm(self.line(x) + torch.arange(4.0).unsqueeze(1))
        return found


def all_of(module: nn.Module) -> Any:
    return bits({**dict(module.named_parameters()), **dict(module.named_buffers())})


def adamw(module: nn.Module, **arguments: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=0.1, **arguments)


class Root(torch.autograd.Function):
    """0, whose gradient is infinite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * float("inf")


BAD = {
    "loss": lambda out: out.square().mean() * NAN,
    "loss alone": lambda out: out.square().mean() + float("inf"),
    "gradient": lambda out: out.square().mean() + Root.apply(out.mean()),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("precision", [32, "bf16", "fp16"])
def test_a_bad_step_changes_nothing(
    bad: Any, fused: bool, max_grad_norm: float | None, count: int, precision: Any
) -> None:
    """In the first step, and in a later one. In fp16 an infinite gradient is the scaler's business, and the
    buffers then stay as they became, as in any loop with a scaler."""
    module = Net()
    optim = Optim(adamw(module, fused=fused), max_grad_norm=max_grad_norm)
    stepper = Stepper(optim, guard=NonfiniteGuard(module), precision=precision)
    is_overflow = precision == "fp16" and bad is BAD["gradient"]
    for _ in range(2):
        before = all_of(module) if not is_overflow else bits(dict(module.named_parameters()))
        values = stepper.run(lambda batch: bad(module(batch)), [X] * count)
        assert float(values["skipped"]) == 1.0
        assert (all_of(module) if not is_overflow else bits(dict(module.named_parameters()))) == before
        values = stepper.run(lambda batch: 1e-3 * module(batch).square().mean(), [X] * count)
        assert float(values["skipped"]) == 0.0
        assert all_of(module) != before


@pytest.mark.parametrize("count", [1, 2])
def test_sparse_gradients_are_looked_at_too(count: int) -> None:
    module = nn.Embedding(5, 3, sparse=True)
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), guard=NonfiniteGuard(module))
    batches = [torch.tensor([1, 1, 2])] * count
    before = all_of(module)
    values = stepper.run(lambda batch: module(batch).mean() + Root.apply(module(batch).mean()), batches)
    assert float(values["skipped"]) == 1.0 and all_of(module) == before
    values = stepper.run(lambda batch: module(batch).mean(), batches)
    assert float(values["skipped"]) == 0.0 and all_of(module) != before


class Large(nn.Module):
    """Beside packed buffers: one that is too large, and one whose memory has another order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(nn.BatchNorm1d(3) for _ in range(3))
        self.line = nn.Linear(3, 3)
        self.register_buffer("queue", torch.rand(2**18 + 1))
        self.register_buffer("table", torch.rand(4, 5).t())
        self.register_buffer("short", torch.rand(7, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = norm(x)
        for buffer in (self.queue, self.table, self.short):
            buffer += 1  # type: ignore[operator]
        found: Tensor = self.line(x)
        return found


def test_buffers_of_every_type_and_size_are_put_back() -> None:
    module = Large()
    stepper = Stepper(adamw(module), guard=NonfiniteGuard(module))
    for _ in range(2):
        before = all_of(module)
        stepper.run(lambda batch: module(batch).mean() * NAN, [torch.rand(4, 3)])
        assert all_of(module) == before
        stepper.run(lambda batch: module(batch).mean(), [torch.rand(4, 3)])
        assert all_of(module) != before


class CountsOperations(TorchDispatchMode):
    """On a GPU each is a kernel, or for lists of tensors of one type a few."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        if "_foreach" in str(func):  # one type and device: otherwise torch copies one after the other
            for tensors in (one for one in args if isinstance(one, list)):
                assert len({(one.dtype, one.device) for one in tensors}) == 1
        return func(*args, **(kwargs or {}))


def test_the_guard_costs_as_much_for_a_hundred_normalisations_as_for_one() -> None:
    """A ResNet-50 has 53 of them, with 159 buffers of two types."""
    counts = []
    for number in (1, 53):
        guard = NonfiniteGuard(nn.ModuleList(nn.BatchNorm2d(64) for _ in range(number)))
        guard.begin()
        counter = CountsOperations()
        with counter:
            guard.begin()
            guard.check(torch.tensor(1.0), [])
        counts.append(counter.names)
    assert counts[0] == counts[1] and len(counts[1]) < 20


def test_the_flag_is_of_all_since_it_was_taken() -> None:
    module = Net()
    guard = NonfiniteGuard(module)
    stepper = Stepper(adamw(module), guard=guard)
    assert guard.flag is None
    for factor, flag in ((1.0, False), (NAN, True), (1.0, True)):
        stepper.run(lambda batch, f=factor: module(batch).square().mean() * f, [X])  # type: ignore[misc]
        assert guard.flag is not None and bool(guard.flag) is flag


def test_a_guard_that_does_not_look_only_puts_back() -> None:
    module = Net()
    guard = NonfiniteGuard(module, checks_step=False)
    stepper = Stepper(adamw(module), guard=guard)
    before = all_of(module)

    def fails(batch: Tensor) -> Tensor:
        module(batch)
        raise RuntimeError("in the loss")

    with pytest.raises(RuntimeError, match="in the loss"):
        stepper.run(fails, [X])
    assert all_of(module) != before and not stepper.has_stepped
    guard.restore()
    assert all_of(module) == before
    values = stepper.run(lambda batch: module(batch).square().mean() * NAN, [X])
    assert "skipped" not in values and guard.flag is None


class Replacing(nn.Module):
    """Whose buffers are other tensors after each forward."""

    mean: Tensor
    seen: Tensor
    first: Tensor | None
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("seen", torch.zeros(0))
        self.register_buffer("first", None)
        self.register_buffer("weight", self.line.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + x.mean(0)
        self.seen = torch.cat([self.seen, x[:1, 0]])
        self.first = x[0] if self.first is None else self.first
        self.weight = self.line.weight.detach()
        found: Tensor = self.line(x) - self.mean
        return found


def test_a_buffer_that_became_another_tensor_is_put_back() -> None:
    module = Replacing()
    stepper = Stepper(adamw(module), guard=NonfiniteGuard(module))
    for factor, flag in ((NAN, 1.0), (1.0, 0.0), (NAN, 1.0)):
        before = all_of(module)
        values = stepper.run(lambda x, f=factor: module(x * f).square().mean(), [X])  # type: ignore[misc]
        assert float(values["skipped"]) == flag and (all_of(module) == before) is bool(flag)
    assert module.weight.data_ptr() == module.line.weight.data_ptr()  # in a good step it is the project's own
    assert torch.equal(module.weight, module.line.weight) and len(module.seen) == 1


def test_a_buffer_that_became_another_tensor_is_put_back_after_an_error() -> None:
    module = Replacing()
    guard = NonfiniteGuard(module, checks_step=False)
    before = all_of(module)
    with pytest.raises(IndexError):
        Stepper(adamw(module), guard=guard).run(lambda x: module(x)[9].sum(), [X])
    guard.restore()
    assert all_of(module) == before and module.first is None


@pytest.mark.parametrize("kind", ["expanded", "sparse", "made for inference"])
def test_buffers_that_no_step_can_write_into_are_ignored(kind: str) -> None:
    module = Net()
    with torch.inference_mode(kind == "made for inference"):
        buffer = {"expanded": torch.ones(1, 3).expand(4, 3), "sparse": torch.eye(3).to_sparse()}.get(kind)
        module.register_buffer("kept", torch.zeros(3) if buffer is None else buffer)
    stepper = Stepper(adamw(module), guard=NonfiniteGuard(module))
    for factor, flag in ((NAN, 1.0), (1.0, 0.0)):
        values = stepper.run(lambda x, f=factor: (module(x) * f).square().mean(), [X])  # type: ignore[misc]
        assert float(values["skipped"]) == flag and module.get_buffer("hidden").tolist() == [1 - flag] * 2


def test_buffers_may_come_and_grow() -> None:
    module = Net()
    guard = NonfiniteGuard(module)
    guard.begin()
    module.hidden = torch.ones(7)
    module.later = torch.ones(1)
    guard.begin()
    module.hidden += 1
    guard.restore()
    assert torch.equal(module.hidden, torch.ones(7))
    NonfiniteGuard(nn.Linear(1, 1)).restore()


# --- which kernels see the flag ---------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [True, False])
@pytest.mark.parametrize(
    ("name", "options", "reads"),
    [
        ("Adam", {"fused": True}, [0, 0]),
        ("AdamW", {"fused": True}, [0, 0]),
        ("Adagrad", {"fused": True}, [0, 0]),
        ("SGD", {"fused": True}, [0, 0]),
        ("SGD", {"fused": True, "momentum": 0.9}, [1, 0]),
        ("SGD", {"momentum": 0.9}, [1, 1]),
        ("AdamW", {}, [1, 1]),
    ],
)
def test_what_a_step_reads(name: str, options: Any, reads: list[int], bad: bool) -> None:
    """In the first good step and after it. Other optimizers than fused ones cannot take their step back."""
    module = nn.Linear(3, 3)
    optim = Optim(getattr(torch.optim, name)(module.parameters(), lr=0.1, **options))
    found = []
    for flag in (False, bad):
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, NAN if flag else 1.0)
        before, counter = all_of(module), CountsReads.Below()
        kept = torch.tensor(flag)
        with counter:
            step_unless(kept, optim)
        # Those with a plain kernel count their steps on the host.
        found.append(min(counter.reads, 1))
        assert (all_of(module) == before) is flag
        assert not hasattr(optim.optimizer, "found_inf")
    assert found == reads


def test_who_waits(messages: Messages) -> None:
    fused, plain_one = (Optim(adamw(nn.Linear(1, 1), fused=fused)) for fused in (True, False))
    lbfgs = Optim(torch.optim.LBFGS(nn.Linear(1, 1).parameters()))
    both = {"a": fused, "b": plain_one}
    assert host_waits(both, scales=False, checks_step=False) == []
    assert host_waits({"a": fused}, scales=True, checks_step=True) == []
    (line,) = host_waits(both, scales=False, checks_step=True)
    assert all(name in line for name in ("optimizer 'b'", "on_non_finite", "AdamW"))
    messages.check(line)
    (line,) = host_waits(both, scales=True, checks_step=True)
    assert "optimizer 'b'" in line and "fp16" in line
    messages.check(line)
    (line,) = host_waits({"main": lbfgs}, scales=False, checks_step=False)
    assert "optimizer 'main'" in line and "LBFGS" in line
    messages.check(line)


@pytest.mark.parametrize(("device", "lines"), [("meta", 1), ("cpu", 0)])
def test_it_is_said_once_and_where_there_is_something_to_wait_for(
    device: str, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    module = nn.Linear(1, 1, device=device)
    Stepper(adamw(module), guard=NonfiniteGuard(module))
    assert capsys.readouterr().out.count("optimizer 'main'") == lines


@pytest.mark.parametrize("options", [{"precision": "fp16"}, {"guard": NonfiniteGuard(nn.Linear(1, 1))}])
def test_an_optimizer_that_evaluates_the_loss_cannot_be_skipped(options: Any, messages: Messages) -> None:
    optimizer = torch.optim.LBFGS(nn.Linear(1, 1).parameters())
    with pytest.raises(ContractError, match=r"LBFGS.*precision: 32 or bf16") as refused:
        Stepper(optimizer, **options)
    messages.check(refused.value)
    Stepper(optimizer, precision="bf16", guard=NonfiniteGuard(nn.Linear(1, 1), checks_step=False))


# --- in a step with several optimizers --------------------------------------------------------------------


class Halting(Gan):
    """Whose first loss is NaN in some steps."""

    bad: tuple[int, ...] = ()

    def d_loss(self, batch: Any) -> Tensor:
        return super().d_loss(batch) * (NAN if self.progress.step in self.bad else 1.0)


class Choosing(Halting):
    """Gives of its optimizers' values what it likes."""

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        values = super().update(stepper, batches)
        return {"g_loss": values["g_loss"]}


@pytest.mark.parametrize("kind", [Halting, Choosing])
def test_a_step_is_skipped_when_one_of_its_optimizers_is(kind: type[Halting]) -> None:
    """Not only when it is the last one, whose values come last."""
    runner = built(kind)
    runner.bad = (1, 2)
    optims = {name: torch.optim.Adam(getattr(runner, name).parameters(), lr=0.1) for name in ("d", "g")}
    stepper = Stepper(optims, guard=NonfiniteGuard(runner))
    trainer = plain(runner, Still(), until=4, stepper=stepper, recovery=Recovery(on_non_finite="skip"))
    trainer.fit()
    row = trainer.events.row()
    assert row.pop("skipped") == 2.0
    assert all(value == value for value in row.values()), row
    assert trainer.events.first_bad is None


def test_without_a_trainer_each_run_has_its_own_flag() -> None:
    module = Net()
    stepper, events = Stepper(adamw(module), guard=NonfiniteGuard(module)), Events()
    for factor in (NAN, 1.0):
        values = stepper.run(lambda batch, f=factor: module(batch).square().mean() * f, [X])  # type: ignore[misc]
        events.put(values)
    assert events.row()["skipped"] == 1.0
