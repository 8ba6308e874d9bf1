"""Putting weights into a module: names, shapes, types, what is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from roost.base.errors import CheckpointError
from roost.train.weights.weight_loader import LoadReport, WeightFit
from tests.messages import Messages


class Net(nn.Module):
    """features.0, features.1 (a normalisation), head; a hidden buffer, an integer one, extra state."""

    def __init__(self, *, out: int = 2) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, out)
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.register_buffer("table", torch.zeros(2, dtype=torch.int32))
        self.words = ["as built"]

    def get_extra_state(self) -> Any:
        return self.words

    def set_extra_state(self, state: Any) -> None:
        self.words = state


def other(**options: Any) -> dict[str, Any]:
    """The state of a net with other values."""
    net = Net(**options)
    with torch.no_grad():
        for number, tensor in enumerate([*net.parameters(), net.features[1].running_mean, net.table]):
            tensor.fill_(number + 1)
    net.words = ["as saved"]
    return dict(net.state_dict())


def same(module: nn.Module, state: dict[str, Any]) -> bool:
    own = module.state_dict()
    return all(torch.equal(own[name], value) for name, value in state.items() if torch.is_tensor(value))


def wrapped(state: dict[str, Any], kind: str) -> dict[str, Any]:
    inner = Net()
    inner.load_state_dict(state)
    if kind == "parallel":
        return dict(nn.DataParallel(inner).state_dict())
    inner.features = torch.compile(inner.features)  # type: ignore[assignment]
    return dict(torch.compile(inner).state_dict())  # type: ignore[attr-defined]


def test_a_whole_state() -> None:
    net, state = Net(), other()
    fit = WeightFit(net, state)
    assert not same(net, state), "nothing is changed before it is loaded"
    fit.load()
    assert same(net, state) and net.words == ["as saved"]
    assert fit.report.lines() == [] and "10 of 10 " in fit.report.summary


@pytest.mark.parametrize("kind", ["parallel", "compiled"])
def test_a_state_of_a_wrapped_module(kind: str) -> None:
    net, state = Net(), other()
    fit = WeightFit(net, wrapped(state, kind))
    fit.load()
    assert same(net, state) and fit.report.lines() == []


def test_a_plain_state_into_a_compiled_module() -> None:
    inner, state = Net(), other()
    fit = WeightFit(torch.compile(inner), state)  # type: ignore[arg-type]
    fit.load()
    assert same(inner, state) and fit.report.lines() == []


def test_what_is_missing_unexpected_and_mismatched(messages: Messages) -> None:
    net, state = Net(), other(out=5)
    del state["features.0.bias"], state["table"]
    fit = WeightFit(net, {**state, "extra.weight": torch.zeros(1), "epoch": 3, "hidden": torch.ones(2)})
    before = net.head.weight.clone()
    fit.load()
    report = fit.report
    assert report.missing == ["table", "features.0.bias"]
    assert report.unexpected == ["extra.weight"]
    for line, facts in zip(
        report.mismatched, [("head.weight", "5x4", "2x4"), ("head.bias", "5", "2")], strict=True
    ):
        assert all(fact in line for fact in facts)
        messages.check(line)
    assert [text.split(" ")[0] for text in report.left_out] == ["epoch", "hidden"]
    messages.check(report.left_out[1])
    assert "6 of 10 " in report.summary
    assert torch.equal(net.head.weight, before) and torch.equal(net.hidden, torch.zeros(2))
    assert torch.equal(net.features[0].weight, state["features.0.weight"])


def test_counts_and_extra_state_may_be_missing() -> None:
    net, state = Net(), other()
    del state["features.1.num_batches_tracked"], state["_extra_state"]
    fit = WeightFit(net, state)
    fit.load()
    assert not fit.report.problems() and net.words == ["as built"]
    assert fit.report.kept == ["_extra_state", "features.1.num_batches_tracked"]


def test_types_are_converted_within_their_kind(messages: Messages) -> None:
    net, state = Net(), other()
    fit = WeightFit(
        net, {**state, "head.weight": state["head.weight"].half(), "table": state["table"].long()}
    )
    fit.load()
    assert same(net, state) and net.table.dtype == torch.int32
    expected = [("float16", "float32", "(1)"), ("int64", "int32", "(1)")]
    for line, facts in zip(sorted(fit.report.converted), expected, strict=True):
        assert all(fact in line for fact in facts)
        messages.check(line)


@pytest.mark.parametrize(
    ("name", "value", "facts"),
    [
        ("table", torch.ones(2), ("float32", "int32")),
        ("head.bias", torch.ones(2, dtype=torch.int64), ("int64", "float32")),
        ("table", torch.tensor([1, 2**40]), ("int64", "int32")),
        ("head.bias", torch.tensor([1.0, 1e300], dtype=torch.float64), ("float64", "float32")),
        ("head.bias", torch.ones(()), ("2 here",)),
    ],
    ids=["float to int", "int to float", "large int", "large float", "one number"],
)
def test_what_cannot_be_converted(
    name: str, value: torch.Tensor, facts: tuple[str, ...], messages: Messages
) -> None:
    fit = WeightFit(Net(), {**other(), name: value})
    (line,) = fit.report.mismatched
    assert line.startswith(f"{name} ") and all(fact in line for fact in facts)
    messages.check(line)
    assert fit.report.missing == []


def test_a_value_that_is_infinite_there_may_be_so_here() -> None:
    net = Net()
    fit = WeightFit(net, {**other(), "head.bias": torch.tensor([1.0, float("inf")], dtype=torch.float64)})
    fit.load()
    assert not fit.report.problems() and bool(net.head.bias.isinf().any())


def test_tied_weights_need_one_name(messages: Messages) -> None:
    net = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    net["b"].weight = net["a"].weight
    fit = WeightFit(net, {"b.weight": torch.ones(2, 2)})
    fit.load()
    assert fit.report.missing == [] and torch.equal(net["a"].weight, torch.ones(2, 2))
    both = WeightFit(net, {"a.weight": torch.ones(2, 2), "b.weight": torch.zeros(2, 2)})
    (note,) = both.report.notes
    assert "a.weight" in note and "b.weight" in note
    messages.check(note)


def test_two_names_for_one_tensor_are_reported() -> None:
    fit = WeightFit(
        nn.Linear(2, 2, bias=False), {"weight": torch.ones(2, 2), "module.weight": torch.zeros(2, 2)}
    )
    assert fit.report.loaded == ["weight"] and fit.report.unexpected == ["module.weight"]


def test_another_beginning_is_found_where_it_is_the_only_one() -> None:
    runner, state = nn.ModuleDict({"net": Net()}), other()
    fit = WeightFit(runner, state)
    fit.load()
    assert same(runner["net"], state) and fit.report.missing == []
    assert 'mapping: {"": "net."}' in fit.report.notes[0]


def test_of_two_beginnings_none_is_taken() -> None:
    two = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    fit = WeightFit(two, {"weight": torch.ones(2, 2), "bias": torch.ones(2)})
    assert fit.report.loaded == [] and fit.report.unexpected == ["weight", "bias"]
    assert fit.proposals[:2] == [("", "a.", 2), ("", "b.", 2)]


def test_a_part_that_fits_is_only_proposed() -> None:
    state = {f"backbone.{name}": value for name, value in other().items() if name.startswith("features.")}
    fit = WeightFit(nn.ModuleDict({"net": Net()}), {**state, "fc.weight": torch.zeros(9, 9)})
    assert fit.report.loaded == [] and fit.proposals[0][:2] == ("backbone.", "net.")


def test_a_mapping() -> None:
    net, state = Net(), other(out=9)
    theirs = {f"module.backbone.{name}": value for name, value in state.items()}
    mapping = {"backbone.": "", "backbone.head.": None, "nothing.": "x."}
    report = WeightFit(net, theirs, mapping).report
    assert report.missing == ["head.weight", "head.bias"] and report.unexpected == report.mismatched == []
    assert report.left_out == ["module.backbone.head.weight", "module.backbone.head.bias"]
    assert report.unused == ["nothing."]
    wrong = WeightFit(net, {"backbone.x": torch.zeros(1)}, {"backbone.": "net."}).report
    assert wrong.unexpected == ["backbone.x -> net.x"]


def test_a_module_that_refuses_its_state(messages: Messages) -> None:
    class Refuses(nn.Linear):
        def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
            raise RuntimeError("not me")

    fit = WeightFit(Refuses(1, 1), {"weight": torch.ones(1, 1), "bias": torch.ones(1)})
    with pytest.raises(CheckpointError) as refused:
        fit.load()
    assert "not me" in str(refused.value)
    messages.check(refused.value)


def test_what_fits_wholly_has_nothing_to_say() -> None:
    whole = LoadReport(num_tensors=1, loaded=["a"])
    assert "1 of 1 " in whole.summary and whole.problems() == [] and whole.lines() == []


def test_everything_is_counted_and_named(messages: Messages) -> None:
    report = LoadReport(
        num_tensors=20,
        loaded=["w"],
        missing=[f"net.{n}.w" for n in range(9)] + ["head.w"],
        unexpected=["x"],
        mismatched=[f"m{n} is 2 in the file, 3 here" for n in range(6)],
        left_out=["epoch"],
        kept=["bn.num_batches_tracked"],
        converted=["float16 in the file, float32 here (1)"],
        unused=["back."],
        notes=["something"],
    )
    assert "1 of 20 " in report.summary
    facts = [
        ("10 missing", "net.* (9), head.w"),
        ("1 unexpected", ": x"),
        ("6 mismatched", "m0 is 2 in the file, 3 here", "m3 is 2 in the file, 3 here", "2 more"),
        ("1 ", "'back.'"),
        ("1 ", "epoch"),
        ("1 ", "bn.num_batches_tracked"),
        ("1 converted", "float16 in the file, float32 here (1)"),
        ("something",),
    ]
    for line, named in zip(report.lines(), facts, strict=True):
        assert all(fact in line for fact in named), line
    messages.check("\n".join([report.summary, *report.lines()]))
    assert len(report.problems()) == 4
    assert not any("missing" in part for part in report.problems(missing=False))
