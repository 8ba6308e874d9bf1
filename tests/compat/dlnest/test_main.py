"""A script with DLNest's imports, run by the real program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from near import NAME
from DLNest.SavePackage.SavePackage import SavePackage
from DLNest.Analyze import analyze
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch

if __name__ == "__main__":
    assert callable(analyze) and RunnerBaseTorch.__name__ == "RunnerBaseTorch"
    package = SavePackage()
    package.giveArgs({"save_root": "Saves", "checkpoint_args": {"max_ckpt_in_fast_track": 2}})
    package.saveToNewDir(NAME, copyFiles=False)
    for number in range(3):
        package.saveACheckpoint({"n": number})
    print(sys.argv, package.getStateDict(device="cpu"))
    if "fail" in sys.argv:
        raise ValueError("of the script")
    if "refused" in sys.argv:
        package.getStateDict(77, "cpu")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "roost.compat.dlnest", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config")},
    )  # fmt: skip


def test_an_unchanged_script(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "near.py").write_text("NAME = 'mine'\n")
    (tmp_path / "code" / "work.py").write_text(SCRIPT)
    done = run(tmp_path, "code/work.py", "--lr", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['code/work.py', '--lr', '3'] {'n': 2}\n"
    assert sorted(one.name for one in (tmp_path / "Saves/mine/Checkpoints").iterdir()) == [
        "state_1.ckpt", "state_2.ckpt"
    ]  # fmt: skip
    session = tmp_path / "Saves/mine/sessions/1.json"
    assert '"succeeded"' in session.read_text()
    failed = run(tmp_path, "code/work.py", "fail")
    assert failed.returncode == 1 and "ValueError: of the script" in failed.stderr
    assert "of the script" in (tmp_path / "Saves/mine-2/sessions/1.json").read_text()
    refused = run(tmp_path, "code/work.py", "refused")
    assert refused.returncode != 0 and refused.stderr.startswith("error: there is no checkpoint 77")


def test_without_a_script(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 2
    done = run(tmp_path, "missing.py")
    assert done.returncode == 2 and "no such script" in done.stderr
