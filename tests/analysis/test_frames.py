"""The person's own part of a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.analysis import frames, script
from roost.base.errors import NotFound
from roost.package.package import Package


def test_begins_at_the_person_and_goes_on_to_where_it_was_raised(tmp_path: Path) -> None:
    file = tmp_path / "look.py"
    text = "from roost.package.package import Package\ndef experience(self):\n    Package.open(self)\n"
    file.write_text(text)
    function = script.load(file, file, tmp_path)
    with pytest.raises(NotFound) as caught:
        function(tmp_path)
    told = frames.told(caught.value.with_traceback(caught.tb.tb_next))
    assert told is not None
    lines = told.splitlines()
    assert lines[1] == f'  File "{file}", line 3, in experience'
    assert "package.py" in told and "NotFound" in lines[-1]


def test_an_import_that_fails_begins_at_the_script_too(tmp_path: Path) -> None:
    file = tmp_path / "look.py"
    file.write_text("\nimport nowhere_at_all\n")
    with pytest.raises(ModuleNotFoundError) as caught:
        script.load(file, file, tmp_path)
    told = frames.told(caught.value.with_traceback(caught.tb.tb_next))
    assert told is not None and told.splitlines()[1] == f'  File "{file}", line 2, in <module>'


def test_nothing_of_the_person_was_running(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        Package.open(tmp_path)
    assert frames.told(caught.value.with_traceback(caught.tb.tb_next)) is None


def test_texts_of_any_kind() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert frames.text(Rude()) == "<its text raises RuntimeError>"
    error = ValueError("x" * 10_000)
    assert len(frames.text(error)) < 2100
    noted = ValueError("a")
    noted.add_note("b")
    assert frames.text(noted) == "a; b"
