from __future__ import annotations

import time

import pytest

from roost.base.errors import ConfigError
from roost.base.session_end import platform_limit as limits
from roost.base.session_end.platform_limit import platform_limit
from tests.messages import Messages

COLAB, KAGGLE = {"COLAB_RELEASE_TAG": "release-colab"}, {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}
HOUR = 3600.0


@pytest.fixture(autouse=True)
def _start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has booted 100 s after the epoch, and a container that started 1000 s after it."""
    monkeypatch.setattr(limits, "boot_time", lambda now: 100.0)
    monkeypatch.setattr(limits, "machine_start", lambda now: 1000.0)


@pytest.mark.parametrize(
    ("environment", "at"),
    [
        (COLAB, 100 + 12 * HOUR),
        (KAGGLE, 1000 + 12 * HOUR),
        ({**KAGGLE, "TPU_ACCELERATOR_TYPE": "v3-8"}, 1000 + 9 * HOUR),
    ],
)
def test_what_is_known_of_a_platform_is_a_guess(
    environment: dict[str, str], at: float, messages: Messages
) -> None:
    found = platform_limit(None, environment, now=2000.0)
    assert (found.at, found.is_guess) == (at, True)
    assert "limits.session_length" in found.source and "ROOST_SESSION_LENGTH" in found.source
    messages.check(found.source)


def test_another_length_is_no_guess() -> None:
    assert platform_limit("24h", COLAB, now=2000.0)[:2] == (100 + 24 * HOUR, False)
    assert platform_limit(None, {**COLAB, "ROOST_SESSION_LENGTH": "20h"}, now=2000.0).at == 100 + 20 * HOUR
    assert platform_limit("24h", {"ROOST_SESSION_LENGTH": "20h"}, now=2000.0).at == 1000 + 24 * HOUR
    assert platform_limit("never", COLAB, now=2000.0) == (None, False, "", ())
    with pytest.raises(ConfigError) as refused:
        platform_limit(None, {"ROOST_SESSION_LENGTH": "long"}, now=2000.0)
    assert refused.value.setting == "ROOST_SESSION_LENGTH"


def test_a_guess_that_is_past_is_given_up_aloud(messages: Messages) -> None:
    found = platform_limit(None, COLAB, now=100 + 13 * HOUR)
    assert found.at is None
    (note,) = found.notes
    assert "13h 00m ago" in note
    messages.check(note)


def test_elsewhere_there_is_none(messages: Messages) -> None:
    assert platform_limit(None, {}, now=2000.0) == (None, False, "", ())
    autodl = platform_limit(None, {"AutoDLContainerUUID": "x"}, now=2000.0)
    assert autodl.at is None
    messages.check(autodl.notes)


def test_the_start_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    now = time.time()
    assert 0 < limits.boot_time(now) <= limits.machine_start(now) <= now
