from __future__ import annotations

import threading
from pathlib import Path

import pytest

from roost.analysis.analyzers import folder_watch
from roost.analysis.analyzers.folder_watch import FolderWatch
from roost.base.system import mounts


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_a_new_file_wakes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "file_system_type", lambda folder: kind)
    monkeypatch.setattr(folder_watch, "_SAFETY_SECONDS", 60.0)
    watch = FolderWatch(tmp_path)
    for number in range(2):
        (tmp_path / f"{number}.part").write_text("")
        (tmp_path / f"{number}.part").rename(tmp_path / f"{number}.json")
        assert watch.wait()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.extend(iter(watch.wait, False)))
    thread.start()
    watch.close()
    thread.join(100)
    assert not thread.is_alive()
