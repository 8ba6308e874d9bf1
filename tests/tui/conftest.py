"""A fixed clock, colours, and golden screens."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.generated_lab import NOW

SCREENS = Path(__file__).parent / "screens"


@pytest.fixture(autouse=True)
def surroundings_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the generated lab, so that durations on the screen are always the same."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.delenv("NO_COLOR", raising=False)  # Textual reads it itself


@pytest.fixture
def golden_screen(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a screen with the stored one; `--update-screens` stores it."""

    def compare(name: str, found: str) -> None:
        file = SCREENS / f"{name}.txt"
        if request.config.getoption("--update-screens"):
            file.write_text(found, encoding="utf-8")
            return
        assert found == file.read_text(encoding="utf-8"), (
            f"the screen {name} differs: --update-screens, and look"
        )

    return compare
