from __future__ import annotations

from pathlib import Path

from roost.config import reference

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_in_docs_is_what_the_settings_say() -> None:
    assert PAGE.read_text() == reference.markdown(), "python -m roost.config.reference > docs/settings.md"


def test_every_key_has_a_line_of_help() -> None:
    assert "None" not in reference.markdown()
    for key in ("optimizers.NAME.scheduler.class", "checkpoint.best.N.monitor", "early_stopping.patience"):
        assert f"| `{key}` |" in reference.markdown()
