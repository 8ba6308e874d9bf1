from __future__ import annotations

from pathlib import Path

from tools import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_in_docs_is_what_the_settings_say() -> None:
    assert PAGE.read_text() == settings_page.markdown(), "python -m tools.settings_page > docs/settings.md"


def test_every_key_has_a_line_of_help() -> None:
    assert "None" not in settings_page.markdown()
    for key in (
        "optimizers.NAME.scheduler.class",
        "checkpoint.best.N.monitor",
        "early_stopping.patience",
        "roost.seed",
    ):
        assert f"| `{key}` |" in settings_page.markdown()
