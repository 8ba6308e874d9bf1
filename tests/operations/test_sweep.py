from __future__ import annotations

import pytest

from roost.base.errors import UsageError
from roost.operations.sweep import expand, varied


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
     "version=1..2.3", "path=../data", "size=(1,2)"],
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
    assert varied([override, "b=1"]) == [override.partition("=")[0]]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["lr=1,,2"], "empty"),
        (["lr=1,"], "empty"),
        (["lr=1,1"], "twice"),
        (["seed=3..1"], "1..3"),
        (["seed=0..99999"], "at most"),
        (["a=0..199", "b=0..199"], "200 x 200"),
    ],
)
def test_sweeps_that_are_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        expand(overrides)


def test_no_overrides_are_one_task() -> None:
    assert expand([]) == [()]
