"""How curves are presented."""

from __future__ import annotations

import pytest

from roost.base.errors import UsageError
from roost.operations.plots.plot_view import PlotView
from tests.messages import Messages


@pytest.mark.parametrize(
    ("setting", "view"),
    [
        ("--smooth", {"smooth": 1.0}),
        ("--smooth", {"smooth": -0.1}),
        ("--smooth", {"smooth": float("nan")}),
        ("--x", {"x": "wall"}),
        ("--log", {"log": "z"}),
        ("--band", {"band": "ci"}),
    ],
)
def test_a_value_that_is_not_possible(setting: str, view: dict[str, object], messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        PlotView(**view)  # type: ignore[arg-type]
    assert refused.value.setting == setting
    messages.check(refused.value)


@pytest.mark.parametrize(("log", "is_log"), [(None, False), ("none", False), ("y", False), ("xy", True)])
def test_the_horizontal_axis(log: str | None, is_log: bool) -> None:
    assert PlotView(log=log).log_x == is_log
