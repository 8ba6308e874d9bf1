"""The code that a conversion writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from roost.operations.converting import project_files
from roost.operations.converting.project_files import project_file

CODE = sorted(Path(project_files.__file__).parent.glob("*/*.txt"))


def loaded(tool: str, name: str, folder: Path) -> Any:
    """Imports a file of a project."""
    file = folder / name
    file.write_text(project_file(tool, name))
    spec = importlib.util.spec_from_file_location(f"written_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", CODE, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_code_is_python(file: Path) -> None:
    compile(file.read_text(), str(file), "exec")
    assert max(map(len, file.read_text().splitlines())) <= 110


def test_the_rate_of_noam(tmp_path: Path) -> None:
    """The formulas of SpeeChain's rule; its first step is 1, and that of a schedule 0."""
    schedules = loaded("speechain", "schedules.py", tmp_path)
    rate, wide = schedules.Noam(4000), schedules.Noam(4000, d_model=512)
    for step in (1, 2, 3999, 4000, 4001, 100000):
        there = min(step**-0.5, step * 4000**-1.5)
        assert rate(step - 1) == pytest.approx(4000**0.5 * there)
        assert wide(step - 1) == pytest.approx(512**-0.5 * there)
    assert rate(3999) == pytest.approx(1)


class Names:
    """A dataset by name."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def get_data_index(self) -> list[str]:
        return list(self.names)

    def __getitem__(self, name: str) -> str:
        return name.upper()

    def collate_fn(self, batch: list[str]) -> list[str]:
        return batch


def test_samples_are_those_that_every_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = loaded("speechain", "samples.py", tmp_path)
    (tmp_path / "len").write_text("a 3\nb 5\n")
    (tmp_path / "len2").write_text("d 2.0\n")
    (tmp_path / "speaker").write_text("a anna maria\nd dora\nx none\n")
    monkeypatch.setenv("SPEECHAIN_ROOT", str(tmp_path))
    found = samples.Samples(
        Names("a", "b", "c", "d"), data_len=["len", str(tmp_path / "len2")], group_info={"who": "speaker"}
    )
    assert (found.ids, found.lengths, found.groups) == (["a", "d"], [3, 2], {"who": ["anna maria", "dora"]})
    assert [found[number] for number in range(len(found))] == ["A", "D"]
    plain = samples.Samples(Names("a", "b"))
    assert plain.ids == ["a", "b"] and not hasattr(plain, "lengths") and not hasattr(plain, "groups")
    with pytest.raises(ValueError, match="no name in common"):
        samples.Samples(Names("z"), data_len="len")
