"""The name of a thread; the other two are tested by what a session leaves behind."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from roost.base.system import prctl


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_name_is_cut_to_what_the_kernel_shows() -> None:
    seen: list[str] = []

    def name_itself() -> None:
        prctl.set_thread_name(b"a name that is too long")
        seen.append(Path("/proc/thread-self/comm").read_text().rstrip("\n"))

    thread = threading.Thread(target=name_itself)
    thread.start()
    thread.join()
    assert seen == ["a name that is "]
