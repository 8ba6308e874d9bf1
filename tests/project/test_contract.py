from __future__ import annotations

import contextlib
import dataclasses
import io
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import roost
from roost.base.errors import ContractError
from roost.project.contract import move_to_device
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.distributed.ranks import Ranks
from roost.train.progress import Progress
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.team import team


class Runner(roost.Runner):
    """One layer."""

    def build(self) -> None:
        self.net = nn.Linear(3, 1)

    def loss(self, batch: Any) -> Tensor | Mapping[str, Tensor]:
        return self.net(batch[0]).square().mean()


def built() -> Runner:
    runner = Runner({"a": 1}, {"b": 2})
    runner.build()
    return runner


def trainer(runner: roost.Runner) -> Trainer:
    data = TensorDataset(torch.ones(4, 3))
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1))
    return Trainer(runner, {"train": Loader(data, plan=BatchPlan(4, 2))}, stepper, until=4)


# --- Runner -----------------------------------------------------------------------------------------------


def test_has_args_info_device_progress() -> None:
    runner = built()
    assert (runner.args, runner.info) == ({"a": 1}, {"b": 2})
    assert runner.device == torch.device("cpu")
    assert roost.Runner().device == torch.device("cpu")
    assert runner.progress == Progress()
    attached = trainer(runner)
    assert runner.progress is attached.progress
    attached.fit()
    assert (runner.progress.step, runner.progress.fraction) == (4, 1.0)


def test_the_trainer_is_no_part_of_the_model() -> None:
    runner = built()
    before = list(runner.state_dict())
    trainer(runner)
    assert list(runner.state_dict()) == before
    assert [name for name, _ in runner.named_modules()] == ["", "net"]


@pytest.mark.parametrize(
    "name", ["loss", "evaluate", "build", "update", "log", "forward", "train", "to", "type"]
)
@pytest.mark.parametrize(("value", "kind"), [(nn.MSELoss(), "module"), (3, "value"), (lambda: 1, "value")])
def test_a_method_s_name_assigned_over(name: str, value: Any, kind: str, messages: Messages) -> None:
    runner = built()
    with pytest.raises(ContractError, match=rf"self\.{name} .*self\.{name}_{kind}") as refused:
        setattr(runner, name, value)
    if name == "loss":
        messages.check(refused.value)
    assert name not in runner._modules


@pytest.mark.parametrize("name", ["device", "progress"])
def test_a_property_s_name_assigned_over(name: str, messages: Messages) -> None:
    """nn.Module would take a module in silence, and the property would hide it."""
    with pytest.raises(ContractError, match=rf"self\.{name} .*self\.{name}_module") as refused:
        setattr(built(), name, nn.Linear(1, 1))
    messages.check(refused.value)


def test_other_names_are_free() -> None:
    runner = built()
    runner.loss_module, runner.training, runner.own = nn.MSELoss(), False, 3  # type: ignore[assignment]
    runner.net = nn.Linear(3, 2)
    assert "loss_module" in runner._modules


def test_what_is_not_written_says_so(messages: Messages) -> None:
    bare = roost.Runner()
    for call in (bare.build, lambda: bare.loss(None), lambda: bare.predict(None)):
        with pytest.raises(ContractError, match=r"Runner.*(build|loss|predict)\(\)") as refused:
            call()
        messages.check(refused.value)
    with pytest.raises(NotImplementedError):
        bare.optimizers()
    with pytest.raises(ContractError, match=r"Dataset .*build\(\).*-> roost\.Data") as refused:
        roost.Dataset({}).build()
    messages.check(refused.value)
    roost.Dataset({}).prepare()
    assert bare.visualize(None) == {} and bare.summarize({}, "valid") == {}


def test_evaluate_gives_the_loss_when_it_is_not_written(messages: Messages) -> None:
    runner = built()
    batch = [torch.ones(2, 3)]
    assert runner.evaluate(batch).keys() == {"loss"}
    with pytest.raises(ContractError, match=r"Runner .*evaluate\(\)") as raised:
        roost.Runner().evaluate(batch)
    messages.check(raised.value)

    class Weighted(Runner):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            value = self.net(batch[0]).mean()
            return {"loss": value, "accuracy": value, "weight": value}

    other = Weighted()
    other.build()
    assert other.evaluate(batch).keys() == {"loss", "accuracy"}


def test_update_is_one_step_of_the_main_optimizer() -> None:
    runner = built()
    before = runner.net.weight.detach().clone()
    values = runner.update(Stepper(torch.optim.SGD(runner.parameters(), lr=0.1)), [[torch.ones(2, 3)]])
    assert values.keys() == {"loss"}
    assert not torch.equal(runner.net.weight, before)


def test_log_needs_a_trainer_and_training() -> None:
    runner = built()
    runner.log(x=1.0)  # nobody listens, nothing fails
    attached = trainer(runner)
    runner.eval()
    runner.log(x=1.0)
    assert not attached.events
    runner.train()
    runner.log(x=runner.net.weight.sum(), y=2.0)
    row = attached.events.row()
    assert row["y"] == 2.0 and row.keys() == {"x", "y"}


def test_log_counts_each_call_the_same() -> None:
    class Logs(Runner):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            self.log(size=float(len(batch[0])))
            return {"loss": self.net(batch[0]).mean(), "own": torch.tensor(float(len(batch[0])))}

    runner = Logs()
    runner.build()
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1))
    data = Loader(TensorDataset(torch.ones(4, 3)), plan=BatchPlan(4, 3))
    attached = Trainer(runner, {"train": data}, stepper, until=2)
    attached.fit()
    row = attached.events.row()
    assert (row["size"], row["own"]) == (2.0, 2.5)
    assert attached.inexact == [], "that names were logged is no state of the model"


@pytest.mark.parametrize("names", [["loss"], ["other", "accuracy"], ["weight"], ["skipped"]])
def test_log_refuses_what_loss_returns(names: list[str], messages: Messages) -> None:
    class Twice(Runner):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            value = self.net(batch[0]).mean()
            self.log(**dict.fromkeys(names, value))
            return {"loss": value, "accuracy": value}

    runner = Twice()
    runner.build()
    with pytest.raises(ContractError, match=rf"{names[-1]}.*self\.log|log\({names[-1]}=") as refused:
        trainer(runner).fit()
    messages.check(refused.value)


def test_log_in_evaluate_says_once_that_it_is_dropped(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    runner = built()
    attached = trainer(runner)
    runner.eval()
    runner.log(x=1.0, y=2.0)
    runner.log(x=1.0)
    said = capsys.readouterr().out
    assert "self.log(x, y)" in said and "evaluate()" in said and said.count("\n") == 1
    messages.check(said)
    assert not attached.events


def test_print_and_gather_with_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    runner = built()
    runner.print("a", 1)
    assert capsys.readouterr().out == "a 1\n"
    assert runner.all_gather(torch.ones(2)).shape == (1, 2)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_print_and_gather_with_several(kind: torch.dtype) -> None:
    def gather(ranks: Ranks) -> tuple[list[Tensor], str]:
        runner = built()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            runner.print("of rank", ranks.rank)
        columns = torch.tensor([[ranks.rank, 1], [0, 1]]).to(kind).t()  # not contiguous
        found = [runner.all_gather(one) for one in (columns, columns[0, 0], columns[:0])]
        assert torch.equal(found[0][ranks.rank], columns) and not found[0].requires_grad
        return found, said.getvalue()

    (first, said), (second, silent) = team(2, gather)
    assert (said, silent) == ("of rank 0\n", "")
    assert [one.shape for one in first] == [(2, 2, 2), (2,), (2, 0, 2)]
    assert all(torch.equal(a, b) and a.dtype is kind for a, b in zip(first, second, strict=True))
    assert first[1].tolist() == [0, 1]


# --- moving batches ---------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Graph:
    """An object that knows how to move."""

    nodes: Tensor

    def to(self, device: torch.device) -> Graph:
        return Graph(self.nodes.to(device))


def test_any_nest_is_moved() -> None:
    meta = torch.device("meta")
    x = torch.ones(2)
    found = move_to_device({"a": [x, (x, "text")], "b": Pair(x, 3), "c": Graph(x), "d": None}, meta)
    assert found["a"][0].device == found["a"][1][0].device == found["b"].x.device == meta
    assert found["c"].nodes.device == meta
    assert (found["a"][1][1], found["b"].y, found["d"]) == ("text", 3, None)
    assert isinstance(found["b"], Pair)


class Encoding(UserDict[str, Tensor]):
    """As a tokenizer's batch: a mapping that knows how to move."""

    def to(self, device: torch.device) -> Encoding:
        made = Encoding({name: value.to(device) for name, value in self.items()})
        made.moved = True  # type: ignore[attr-defined]
        return made


@pytest.mark.parametrize(
    "value",
    [
        Encoding(x=torch.ones(2)),
        UserDict(x=torch.ones(2)),
        OrderedDict(x=torch.ones(2)),
        defaultdict(list, x=torch.ones(2)),
        MappingProxyType({"x": torch.ones(2)}),
        nn.utils.rnn.pack_sequence([torch.ones(2)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_batch_keeps_its_type(value: Any) -> None:
    found = move_to_device(value, torch.device("meta"))
    kind = type(value)
    assert type(found) is (dict if kind is MappingProxyType else kind)
    assert getattr(found, "moved", False) == (kind is Encoding)
    if isinstance(found, Mapping):
        assert found["x"].device.type == "meta" and value["x"].device.type == "cpu"
    if isinstance(found, defaultdict):
        assert found["new"] == []


def test_only_copies_to_cuda_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(Tensor, "to", lambda self, device, non_blocking: asked.append(non_blocking))
    for device in ("cuda:1", "mps", "meta"):
        move_to_device(torch.ones(1), torch.device(device))
    assert asked == [True, False, False]


def test_on_the_cpu_a_batch_stays_what_it_is() -> None:
    batch = {"a": torch.ones(2)}
    assert built().to_device(batch) is batch


def test_on_another_device_it_goes_there() -> None:
    runner = built().to("meta")
    assert runner.to_device([torch.ones(2)])[0].device.type == "meta"
    assert runner.device.type == "meta"
