from __future__ import annotations

import pytest

from roost.base.errors import ConfigError, UsageError
from roost.config.values.overrides import apply_overrides
from roost.operations.queue.sweep import covering_combinations, expand, label, varied_keys, with_all_values
from tests.messages import Messages


def test_every_combination_the_last_changing_fastest() -> None:
    assert expand(["lr=1e-3,1e-4", "model.depth=2", "seed=0..2"]) == [
        ("lr=1e-3", "model.depth=2", "seed=0"),
        ("lr=1e-3", "model.depth=2", "seed=1"),
        ("lr=1e-3", "model.depth=2", "seed=2"),
        ("lr=1e-4", "model.depth=2", "seed=0"),
        ("lr=1e-4", "model.depth=2", "seed=1"),
        ("lr=1e-4", "model.depth=2", "seed=2"),
    ]


@pytest.mark.parametrize(
    "override",
    ["betas=[0.9,0.99]", "model={a: 1, b: 2}", "text='a,b'", 'text="a,b"',
     "~model.dropout", "lr=", "text=a, odd [",
     "version='1..2.3'", "path=../data", "size=(1,2)"],
)  # fmt: skip
def test_what_is_one_value(override: str) -> None:
    assert expand([override]) == [(override,)]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a=[1,2],[3]", ["a=[1,2]", "a=[3]"]),
        ("a=1..3,7", ["a=1", "a=2", "a=3", "a=7"]),
        ("a=-1..1", ["a=-1", "a=0", "a=1"]),
        ("+a.b=x,y", ["+a.b=x", "+a.b=y"]),
        ("name=resnet,vit,'a,b'", ["name=resnet", "name=vit", "name='a,b'"]),
    ],
)
def test_what_is_several(override: str, expected: list[str]) -> None:
    assert expand([override]) == [(one,) for one in expected]
    assert varied_keys([override, "b=1"]) == [override.partition("=")[0]]


@pytest.mark.parametrize(
    ("overrides", "setting", "fact"),
    [
        (["lr=1,,2"], "lr", "'1,,2'"),
        (["lr=1,"], "lr", "'1,'"),
        (["lr=1,1"], "lr", "'1,1'"),
        (["seed=3..1"], "seed", "1..3"),
        (["seed=0..99999"], "seed", "10,000"),
        (["a=0..199", "b=0..199"], None, "200 x 200"),
        (["lr=1e-5..1e-3"], "lr", "lr=1e-5,1e-3"),
        (["seed=0,1,2", "seed=3"], "seed", "'0,1,2'"),
        (["seed=3", "seed=0,1,2"], "seed", "'0,1,2'"),
        (["+seed=0,1", "seed=3"], "seed", "'0,1'"),
        (["a.b=0,1", "~a"], "a.b", "'0,1'"),
    ],
)
def test_sweeps_that_are_refused(
    overrides: list[str], setting: str | None, fact: str, messages: Messages
) -> None:
    with pytest.raises(UsageError) as refused:
        expand(overrides)
    assert refused.value.setting == setting and fact in str(refused.value)
    messages.check(refused.value)


def test_no_overrides_are_one_task() -> None:
    assert expand([]) == [()]


def test_a_key_is_given_again_where_nothing_is_lost_by_it() -> None:
    assert expand(["seed=1", "seed=2"]) == [("seed=1", "seed=2")]  # as of `roost run`
    assert len(expand(["a={b: 1},{b: 2}", "a.c=3", "ab=1"])) == 2


def test_samples_show_every_value_but_the_seeds() -> None:
    found = covering_combinations(["lr=1,2,3", "seed=0..9", "size=4,5", "x=6"], fixed_keys=["seed"])
    assert found == [
        ("lr=1", "seed=0", "size=4", "x=6"),
        ("lr=2", "seed=0", "size=5", "x=6"),
        ("lr=3", "seed=0", "size=5", "x=6"),
    ]
    assert covering_combinations(["x=6"], fixed_keys=["seed"]) == [("x=6",)]
    assert covering_combinations([], fixed_keys=["seed"]) == [()]


def test_labels_are_plain_names() -> None:
    asked = ["optimizers.main.lr=1e-3,1e-4", "+seed=0..1", "model.sizes=[64, 32],[8]", "x=1"]
    assert label(asked, expand(asked)[0]) == "lr-1e-3_seed-0_sizes-64_32"
    two = ["optimizers.a.lr=1,2", "optimizers.b.lr=3,4"]
    assert label(two, expand(two)[-1]) == "optimizers.a.lr-2_optimizers.b.lr-4"
    assert label(["x=1", "~y"], ("x=1", "~y")) == ""


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        (["seed=0.001,2", "lr=1e-3,2e-3"], "write optimizers.main.lr=1e-3,2e-3, or"),
        (["epochs=4..6"], "write max_epochs=4..6, or"),
        (["optimizer.lr=1,2"], "did you mean optimizers.main.lr=1,2?"),
        (["depth=3,4", "seed=0..4"], "use +depth=3,4 to add it"),
        (["lr=1e-3", "seed=0..4"], "write optimizers.main.lr=0.001, or"),
    ],
)
def test_the_fix_of_an_error_keeps_all_values(typed: list[str], written: str) -> None:
    values = {"max_epochs": 1, "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}}, "seed": 0}
    combination = expand(typed)[0]
    with pytest.raises(ConfigError) as caught:
        apply_overrides(values, combination)
    error = with_all_values(caught.value, typed, combination)
    assert written in str(error.fix) and error.where == "command line"
    assert error.detail == caught.value.detail
