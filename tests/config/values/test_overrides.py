"""Overrides of a command line: parsing, checking, applying."""

from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config.values.overrides import apply_overrides
from tests.messages import Messages

BASE: dict[str, Any] = {
    "seed": 0, "model": {"width": 1, "layers": [1, 2]}, "n": None,
    "optimizers": {"main": {"class": "x", "lr": 0.1}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [("seed=3", "seed", 3), ("model.width=1e-3", "model.width", 0.001), ("max_steps=5", "max_steps", 5),
     ("model.layers=[3]", "model.layers", [3]), ("data.valid.batch_size=5", "data.valid.batch_size", 5),
     ("optimizers.main.max_grad_norm=1", "optimizers.main.max_grad_norm", 1), ("seed= no ", "seed", "no"),
     ("+model.name=a=b", "model.name", "a=b"), ("+model.width=7", "model.width", 7), ("+n.x=1", "n.x", 1),
     ("+new.deep.key={a: 1}", "new.deep.key.a", 1), ("model={width: 5}", "model.layers", [1, 2]),
     ("+model={name: x}", "model.name", "x"), ("n={a: 1}", "n.a", 1), ("seed=", "seed", "")],
)  # fmt: skip
def test_overrides(override: str, key: str, value: object) -> None:
    found: Any = apply_overrides(BASE, [override])
    for name in key.split("."):
        found = found[name]
    assert found == value


def test_overrides_apply_in_order_and_leave_the_old_values() -> None:
    before = repr(BASE)
    after = apply_overrides(BASE, ["+a.b=1", "a.b=2", "~model.layers", "~seed"])
    assert after == {"model": {"width": 1}, "optimizers": BASE["optimizers"], "n": None, "a": {"b": 2}}
    assert repr(BASE) == before
    assert apply_overrides(BASE, []) == BASE


@pytest.mark.parametrize(
    ("override", "setting", "facts"),
    [
        (
            "model.widht=1",
            None,
            ["'model.widht'", "command line", "'model.width'", "+model.widht=1"],
        ),
        ("data.batchsize=3", None, ["'data.batch_size'"]),
        ("optimizers.man.max_grad_norm=1", None, ["'optimizers.main.max_grad_norm'"]),
        ("optimizers.main.momentum=1", None, ["+optimizers.main.momentum=1"]),
        ("optimizers.main.learning_rate=1", None, ["'optimizers.main.lr'"]),
        (
            "optimizers.main.wd=1",
            None,
            ["'optimizers.main.wd'", "command line", "+optimizers.main.weight_decay=1"],
        ),
        ("learning_rate=1", None, ["write optimizers.main.lr=1"]),
        ("lr=1", None, ["write optimizers.main.lr=1"]),
        ("grad_clip=1", None, ["write optimizers.main.max_grad_norm=1"]),
        ("accum_grad=2", None, ["write gradient_accumulation_steps=2"]),
        ("amp=true", None, ["'precision'"]),
        ("num_epochs=5", None, ["write max_epochs=5"]),
        ("limits.length=5", None, ["wall_time"]),
        ("~model.widht", None, ["'model.width'"]),
        ("~max_steps", None, ["'max_steps'"]),
        ("seed.x=1", None, ["'seed.x'"]),
        (
            "+seed.x=1",
            "seed",
            ["command line", "~seed"],
        ),
        (
            "model.layers.0=1",
            "model.layers",
            ["command line", "[1, 2]"],
        ),
        ("~model.layers.0", "model.layers", []),
        ("seed", None, ["'seed'"]),
        ("+seed", None, ["+a.b=c", "~a.b"]),
        ("~seed=3", None, ["'~seed=3'"]),
        ("=3", None, ["'=3'"]),
        ("", None, []),
        ("+a..b=3", None, ["'+a..b=3'"]),
        ("+../x=3", None, []),
        ("+a.__class__=3", None, []),
        ("+__init__.x=3", None, []),
        ("include=x.yaml", None, []),
        ("+" + "a." * 64 + "a=1", None, []),
        ("model.width=[1", "model.width", ["YAML"]),
        ("checkpoint.best[0].monitor=x", None, ["'checkpoint.best=[...]'"]),
        ("++model.width=3", None, ["write model.width=3"]),
        ("++width=3", None, ["+width=3"]),
        ("++model", None, ["+a.b=c", "~a.b"]),
        ("model={features:9}", "model", ["'{features: 9}'"]),
        ("+model={inner: [{lr:1e-3}]}", "model", ["'{lr: 1e-3}'"]),
        ("optimizers.main={lr:1e-3}", "optimizers.main", ["'{lr: 1e-3}'"]),
        ("model={widht: 9}", None, ["'model.widht'", "'model.width'", "+model.widht=9"]),
        ("optimizers={main: {momentum: 0.9}}", None, ["+optimizers.main.momentum=0.9"]),
    ],
)
def test_bad_overrides(override: str, setting: str | None, facts: list[str], messages: Messages) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(BASE, [override])
    messages.check(caught.value)
    assert override.lstrip("+~").partition("=")[0].partition(".")[0] in str(caught.value)
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("optimizer.lr=1", "optimizers.main.lr=1"),
        ("+optimizer.lr=1", "optimizers.main.lr=1"),
        ("++optimizer.lr=1", "optimizers.main.lr=1"),
        ("optimizer.learning_rate=1", "optimizers.main.lr=1"),
        ("optim.lr=1", "optimizers.main.lr=1"),
        ("optimizers.lr=1", "optimizers.main.lr=1"),
        ("optimizers.momentum=1", "+optimizers.main.momentum=1"),
        ("optimizers.scheduler.gamma=1", None),
    ],
)
def test_the_name_of_the_optimizer_is_added(override: str, meant: str | None, messages: Messages) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(BASE, [override])
    messages.check(caught.value)
    assert (caught.value.fix == f"did you mean {meant}?") == (meant is not None)
    if meant is not None:
        name = meant.lstrip("+").partition("=")[0].rpartition(".")[2]
        assert apply_overrides(BASE, [meant])["optimizers"]["main"][name] == 1


@pytest.mark.parametrize("override", ["max_epoch=2", "optimisers.main.lr=1", "checkpoint.best[0].mode=max"])
def test_no_fix_proposes_a_key_that_is_refused(override: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(BASE, [override])
    messages.check(caught.value)
    assert caught.value.fix and "+" not in caught.value.fix
