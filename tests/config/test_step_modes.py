from __future__ import annotations

from typing import get_args

from roost.config.step_modes import STEP_MODES, StepMode


def test_each_mode_has_its_traits() -> None:
    assert get_args(StepMode) == tuple(STEP_MODES)
    assert [mode for mode, traits in STEP_MODES.items() if not traits.trains] == ["dry", "no_optim"]
    assert [mode for mode, traits in STEP_MODES.items() if traits.compiles] == ["compile"]
    assert [mode for mode, traits in STEP_MODES.items() if not traits.computes] == ["dry"]
