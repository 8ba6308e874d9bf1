"""The tabs of a run: measurements, curves of one run and of several."""

from __future__ import annotations

from roost.operations.live_lab.lab_state import LabState
from roost.tui.drawing import palette
from roost.tui.run_tabs import curves_tab, run_data, settings_tab, system_tab
from roost.tui.run_tabs.run_data import Curve
from roost.tui.view_state import ViewState
from tests.tui.generated_lab import small_lab


def test_measurements_of_a_session() -> None:
    text = (
        '{"format": 1, "columns": ["gpu0/utilization", "host/cpu"]}\n'
        "[10.0, 1.0, [57, null]]\n[11.0, 1.0, [61, 3]]\ntorn"
    )
    found = run_data.parse_system(text)
    assert found is not None
    assert found.values == {"gpu0/utilization": [57, 61], "host/cpu": [None, 3]}
    shown = [strip.text for strip in system_tab.lines(found, 80, palette.DARK)]
    assert any("utilization" in line and "61 %" in line for line in shown)
    assert run_data.parse_system("") is None


def _lab() -> LabState:
    lab = LabState()
    lab.apply_all(small_lab())
    return lab


def test_curves_of_one_quantity_share_a_panel() -> None:
    (task,) = _lab().find("T_12")
    panels = curves_tab.panels([task], ViewState(), {})
    assert [panel.title for panel in panels] == ["valid/accuracy", "loss"]
    assert [curve.name for curve in panels[1].curves] == ["train/loss", "valid/loss"]


def test_of_several_runs_each_has_its_colour() -> None:
    lab = _lab()
    tasks = [*lab.find("T_12"), *lab.find("T_13")]
    panels = curves_tab.panels(tasks, ViewState(metrics=["train/loss"]), {})
    assert [(curve.name, curve.colour) for curve in panels[0].curves] == [("T_12", 0), ("T_13", 1)]


def test_what_was_pushed_goes_on_from_what_was_fetched() -> None:
    (task,) = _lab().find("T_12")
    history = task.histories["train/loss"]
    end = history.steps[-1]
    found = {task.id: {"train/loss": Curve([1.0, float(end - 1)], [9.0, 8.0])}}
    (panel,) = curves_tab.panels([task], ViewState(metrics=["train/loss"]), found)
    assert list(panel.curves[0].x) == [1.0, end - 1.0, float(end)]
    assert list(panel.curves[0].y) == [9.0, 8.0, history.values[-1]]


def test_settings_that_are_equal_are_counted() -> None:
    lab = _lab()
    tasks = [*lab.find("T_12"), *lab.find("T_13")]
    text = "\n".join(strip.text for strip in settings_tab.lines(tasks, 100, palette.PLAIN))
    assert "settings that differ (4 are equal)" in text
    assert "optimizers.main.lr" in text
