"""The staged archives of a machine, listed and removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.operations.keeping.disk_usage import disk_usage
from roost.operations.keeping.staged_data import remove_staged, staged_archives
from roost.project.staging import staging_folder
from tests.cli.programs import roost
from tests.project.staging.archives import pack

USE = """
import sys
from pathlib import Path
from roost.config.sections.staging import StagedArchiveSettings
from roost.project.staging import archive_staging
archive_staging.stage(StagedArchiveSettings(archive=sys.argv[1]), project=Path())
print("staged", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_SCRATCH", str(tmp_path / "scratch"))


def staged(archive: Path) -> subprocess.Popen[str]:
    """A process that uses a staged archive, until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE, str(archive)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline()
    return process


def test_du_and_gc(tmp_path: Path) -> None:
    assert staged_archives() == [] and disk_usage([]).staged == 0
    assert not staging_folder.staging_folder().exists(), "reading makes nothing"
    process = staged(pack(tmp_path / "data.tar", {"a": bytes(1_000_000)}))
    [one] = staged_archives()
    assert one.archive == str(tmp_path / "data.tar") and one.num_bytes == 1_000_000 and one.in_use
    assert disk_usage([]).staged == 1_000_000
    assert list(remove_staged([one])) == [(one, False)]
    kept = roost("gc", "--staged", "--all", "--yes")
    assert kept.returncode == 0 and "1 in use" in kept.stderr and len(staged_archives()) == 1
    process.communicate()
    kept = roost("gc", "--staged", "--yes")
    assert "1 used later than that" in kept.stderr and len(staged_archives()) == 1
    done = roost("gc", "--staged", "--all", "--yes")
    assert "data.tar" in done.stdout and "freed 1 MB" in done.stderr
    assert staged_archives() == []


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        staged_archives([tmp_path / "absent"])
