"""The real program with mirrors: killed, continued, and on a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import exact
import pytest

from roost.operations.reading.verify import verify
from tests.system.test_full_disk import may_mount
from tests.train.mirrors.recorded import by_step, folded, logged_values, narrow, of_wandb, scalars, table

ROOST = str(Path(sys.executable).parent / "roost")
ON = [f"mirrors.{kind}=true" for kind in ("csv", "tensorboard", "wandb")]


def values(rows: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    return {step: {k: v for k, v in row.items() if exact.is_exact(k)} for step, row in rows.items()}


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_killed_twice_and_mirrored_without_a_hole_or_a_double(tmp_path: Path) -> None:
    whole = exact.start(tmp_path / "whole", ["pause=0", *ON])
    assert exact.wait(whole) == 0
    cut = exact.start(tmp_path / "cut", ON)
    for moment in (exact.at_phase("training", 13), exact.at_phase("saving", 24)):
        assert exact.kill_when(cut, moment), "ended before"
        cut = exact.go_on(cut.package, [])
    assert exact.wait(cut) == 0
    rows = by_step(folded(cut.package))
    assert values(rows) == values(by_step(folded(whole.package)))
    assert by_step(table(cut.package / "metrics.csv")) == rows
    assert scalars(cut.package / "tensorboard") == narrow(folded(cut.package))
    # W&B takes nothing back: of a step that was done twice it has the times of the first.
    assert values(logged_values(of_wandb(cut.package / "mirrors"))) == values(rows)
    assert len({path.stem for path in (cut.package / "mirrors" / "wandb").glob("*/run-*.wandb")}) == 1
    assert [found for found in verify(cut.package) if not found.good] == []


@pytest.mark.soak
@pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")
@pytest.mark.timeout(300)
def test_a_mirror_on_a_full_disk_is_said_once_and_training_goes_on(tmp_path: Path) -> None:
    script = f"""
    set -u
    cd {tmp_path}
    {ROOST} run -c {exact.PROJECT}/config.yaml save_root={tmp_path}/runs --name full \\
        max_epochs=1 pause=0 "mirrors.csv={{file: small/m.csv}}" > /dev/null 2>&1
    mount -t tmpfs -o size=8k tmpfs {tmp_path}/runs/full/small
    head -c 8192 /dev/zero > {tmp_path}/runs/full/small/filler
    {ROOST} continue {tmp_path}/runs/full max_epochs=2; echo "full: $?"
    rm {tmp_path}/runs/full/small/filler
    mount -o remount,size=20m {tmp_path}/runs/full/small
    {ROOST} continue {tmp_path}/runs/full max_epochs=3; echo "space: $?"
    cp {tmp_path}/runs/full/small/m.csv {tmp_path}/m.csv
    """
    result = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True)
    said = result.stdout + result.stderr
    assert "full: 0\n" in said and "space: 0\n" in said, said
    assert said.count("mirror csv: OSError: [Errno 28] No space left on device") == 1, said
    assert "Traceback" not in said
    assert table(tmp_path / "m.csv") == folded(tmp_path / "runs" / "full")
