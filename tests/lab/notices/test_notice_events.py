from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.lab.notices import notice_events
from roost.supervisor.notices import notice_folders


@pytest.mark.parametrize(
    ("env", "file"),
    [
        ({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/roost/notices.yaml"),
        ({"XDG_CONFIG_HOME": "x", "HOME": "/h"}, "/h/.config/roost/notices.yaml"),
        ({"HOME": "/h"}, "/h/.config/roost/notices.yaml"),
    ],
)
def test_where_the_settings_are(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], file: str) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert notice_folders.receivers_file(os.environ) == file and notice_events.settings_path() == Path(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that the system does not know")
def test_without_a_home_there_are_no_settings() -> None:
    """As in a container, where the daemon must still run."""
    program = (
        "import os, pwd; from roost.supervisor.notices.notice_folders import receivers_file\n"
        "os.setuid(54321); print(receivers_file(os.environ))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={}, cwd="/")
    assert done.stdout == "~/.config/roost/notices.yaml\n", done.stderr
