from __future__ import annotations

import re
from typing import Any

import pytest

from roost.config.other_tools import synonyms
from roost.config.settings import known_keys
from tests.messages import Messages

KNOWN = list(known_keys({"optimizers": {"main": {}}}))


def quoted(text: str) -> list[str]:
    return re.findall("'([^']*)'", text)


@pytest.mark.parametrize(
    ("key", "candidates", "meant"),
    [
        ("learning_rate", ["lr_scale", "lr"], "lr"),
        ("a.learning_rate", ["a.lr_scale", "a.lr", "b.lr"], "a.lr"),
        ("learning_rate", ["a.lr", "b.lr"], None),
        ("learning_rate", ["lr_scale"], None),
        ("lr", ["lr"], None),
        ("gradient_clip_val", KNOWN, "optimizers.main.max_grad_norm"),
        ("accumulate_grad_batches", KNOWN, "gradient_accumulation_steps"),
        ("fp16", KNOWN, "precision"),
        ("data.prefetch_factor", KNOWN, "data.prefetch"),
        ("sampler", KNOWN, "data.weighted"),
        ("timeout", KNOWN, "data.loader_timeout"),
        ("train_batch_size", KNOWN, "data.batch_size"),
        ("data.valid.workers", KNOWN, "data.valid.num_workers"),
    ],
)
def test_names(key: str, candidates: list[str], meant: str | None) -> None:
    assert synonyms.find_setting(key, candidates) == meant


@pytest.mark.parametrize(
    ("given", "choices", "meant"),
    [
        (16, [32, "bf16", "fp16"], "fp16"),
        ("BFloat16", [32, "bf16", "fp16"], "bf16"),
        ("32-true", [32, "bf16", "fp16"], 32),
        ("stopp", ["stop", "skip"], "stop"),
        (16, ["stop"], None),
        ("zzz", ["stop"], None),
        (["16"], [32], None),
    ],
)
def test_values(given: Any, choices: list[Any], meant: Any) -> None:
    assert synonyms.find_choice(given, choices) == meant


def test_arguments_of_optimizers() -> None:
    assert synonyms.optimizer_argument("optimizers.main.learning_rate") == "optimizers.main.lr"
    assert synonyms.optimizer_argument("model.learning_rate") is None
    assert synonyms.optimizer_argument("optimizers.main.amp") is None, "it is a setting of another section"


def test_what_is_called_so_goes_before_what_is_spelled_so() -> None:
    candidates = ["learning_rates", "lr"]
    assert quoted(synonyms.did_you_mean("learning_rate", candidates)) == ["lr"]
    assert quoted(synonyms.did_you_mean("learning_rats", candidates)) == ["learning_rates"]
    assert synonyms.did_you_mean("zzz", candidates) == ""


def test_a_name_alone_finds_where_it_stands(messages: Messages) -> None:
    known = ["optimizers.main.lr", "optimizers.main.scheduler.lr", "model.width", "or"]
    assert quoted(synonyms.did_you_mean("lr", known)) == ["optimizers.main.lr"]
    assert quoted(synonyms.did_you_mean("main.lr", known)) == ["optimizers.main.lr"]
    both = ["optimizers.a.lr", "optimizers.b.lr"]
    messages.check(synonyms.did_you_mean("lr", both))
    assert quoted(synonyms.did_you_mean("lr", both)) == both
    assert quoted(synonyms.did_you_mean("r", known)) == ["or"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("trainer.max_epochs", "max_epochs"),
        ("trainer.gradient_clip_val", "optimizers.main.max_grad_norm"),
        ("SOLVER.BASE_LR", None),  # an argument of the optimizer, which this config has not set
        ("SOLVER.MAX_ITER", "max_steps"),
        ("save_steps", "checkpoint.every"),
        ("system.max_iter", "max_steps"),
    ],
)
def test_dotted_keys_of_a_tool(key: str, meant: str | None) -> None:
    assert synonyms.find_setting(key, KNOWN) == meant
