"""The text of an error gives what is wrong, where, and the fix; its class decides the exit code."""

from __future__ import annotations

import pytest

from roost.base import errors
from roost.base.errors import ConfigError, RoostError
from tests.messages import Messages


def test_the_text_says_what_was_received_where_and_the_fix(messages: Messages) -> None:
    error = ConfigError(
        "must be above 0", setting="data.batch_size", received=0, where="config.yaml:12", fix="give 1 or more"
    )
    messages.check(error)
    parts = ("data.batch_size", "must be above 0", "0", "config.yaml:12", "give 1 or more")
    assert all(part in str(error) for part in parts)
    assert (error.message, error.setting, error.where, error.fix) == (
        "must be above 0", "data.batch_size", "config.yaml:12", "give 1 or more",
    )  # fmt: skip


def test_what_is_unknown_is_left_out_and_none_is_a_value() -> None:
    assert str(RoostError("the disk is full")) == "the disk is full"
    assert str(RoostError("is no text", received=None)).removeprefix("is no text").endswith("None")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RoostError", 1), ("UsageError", 2), ("NotFound", 3), ("ConfigError", 4), ("Refused", 5),
        ("ContractError", 1), ("CheckpointError", 1), ("TrainingError", 1),
    ],
)  # fmt: skip
def test_exit_codes(name: str, code: int) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, RoostError)
    assert kind("x").exit_code == code


def test_the_fix_follows_its_separator() -> None:
    error = RoostError("is wrong", fix="do it")
    assert str(error).partition(errors.FIX_SEPARATOR) == ("is wrong", "; fix: ", "do it")
    assert errors.with_fix("is wrong", None) == "is wrong"


def test_no_error_shares_a_code_with_a_stop() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RoostError)
    ]
    assert (errors.STOPPED_EXIT_CODE, errors.INTERRUPTED_EXIT_CODE) == (75, 130)
    assert not {kind.exit_code for kind in kinds} & {75, 130, 0}
