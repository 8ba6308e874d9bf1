"""What every test runs in: no colour, an own home for state, and Debian's programs where they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest

IN_CI = os.environ.get("ROOST_CI") == "1"

MARKERS = (
    "needs_program(name): runs a program of Debian; skipped with a reason where it is missing, failed in CI",
    "soak: takes longer than CI may; only `make soak` runs it",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the soak tests out, unless `-m` speaks of them."""
    if "soak" in config.option.markexpr:
        return
    soaks = [item for item in items if item.get_closest_marker("soak")]
    if soaks:
        config.hook.pytest_deselected(items=soaks)
        items[:] = [item for item in items if item not in soaks]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_program"):
        (program,) = marker.args
        if shutil.which(program) is None:
            reason = f"{program} is not installed (apt-get install {program})"
            if IN_CI:
                pytest.fail(f"{reason}; .ci/run must install it", pytrace=False)
            pytest.skip(reason)
        if program == "strace" and not _may_trace():
            pytest.skip("strace may not trace here: ptrace is refused")


@cache
def _may_trace() -> bool:
    return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the programs they start, see neither the person's terminal nor the person's files."""
    home = tmp_path_factory.mktemp("xdg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "120")
        for name in ("STATE", "CACHE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "PYTHONBREAKPOINT", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
            patch.delenv(name, raising=False)
        patch.setenv("MPLBACKEND", "Agg")
        yield
