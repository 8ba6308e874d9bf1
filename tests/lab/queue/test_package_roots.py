"""The folders of packages of tasks."""

from __future__ import annotations

from pathlib import Path

from roost.lab.queue import package_roots


def test_each_folder_is_noted_once(tmp_path: Path) -> None:
    assert package_roots.read(tmp_path) == []
    package_roots.add(tmp_path, [Path("/a/1"), Path("/a/2"), Path("/b\n/1")])
    before = (tmp_path / "roots.jsonl").read_bytes()
    package_roots.add(tmp_path, [Path("/a/3")])
    assert (tmp_path / "roots.jsonl").read_bytes() == before
    package_roots.add(tmp_path, [Path("/c/1"), Path("/a/3")])
    assert package_roots.read(tmp_path) == [Path("/a"), Path("/b\n"), Path("/c")]


def test_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "roots.jsonl").write_bytes(b'"/a"\n7\n\xff\n"/to')
    package_roots.add(tmp_path, [Path("/b/1")])
    assert package_roots.read(tmp_path) == [Path("/a"), Path("/b")]
