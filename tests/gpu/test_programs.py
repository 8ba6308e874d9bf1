"""The real program on a card: killed inside a save and continued, and started warm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from roost.package.package import PackageFolder
from roost.supervisor.forkserver import template_client
from roost.supervisor.forkserver.template_pool import TemplatePool
from tests.gpu.device import DEVICE, REHEARSES
from tests.supervisor.forkserver.test_template_pool import is_warm
from tests.system import exact
from tests.waiting import wait_for
from tests.warming import templates

pytestmark = [pytest.mark.needs_gpu, pytest.mark.timeout(400)]
SETTINGS = ["determinism=strict", "max_epochs=2", "data.num_workers=2", "threads=auto"]
SPARE_MB = 64


def free_mb() -> float:
    return 0.0 if REHEARSES else torch.cuda.mem_get_info()[0] / 2**20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    """The package of a run that was not cut, and what it left."""
    started = exact.start(tmp_path_factory.mktemp("whole"), SETTINGS)
    assert exact.wait(started) == 0, (started.package / "_output.txt").read_text()[-2000:]
    return started.package, exact.fingerprint(started.package)


def test_it_was_trained_on_the_card_and_is_exact(whole: tuple[Path, object]) -> None:
    package = PackageFolder.open(whole[0])
    newest = package.store().lineage()[-1]
    assert newest.inexact == []
    assert f'"device": "{DEVICE}"' in (whole[0] / "environment.json").read_text()


@pytest.mark.parametrize("phase", ["saving", "training", "validating"])
def test_killed_and_continued_it_has_the_same_bits(
    phase: str, tmp_path: Path, whole: tuple[Path, object]
) -> None:
    before = free_mb()
    started = exact.start(tmp_path, SETTINGS)
    was_killed = exact.kill_when(started, exact.at_phase(phase, after_step=4))
    # With loader workers alive at the kill: forked from the process that had the card, they hold it open.
    wait_for(lambda: free_mb() > before - SPARE_MB, timeout_seconds=10)
    if was_killed:
        again = exact.go_on(started.package, SETTINGS[2:3])
        assert exact.wait(again) == 0, (started.package / "_output.txt").read_text()[-2000:]
    assert exact.fingerprint(started.package) == whole[1]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[TemplatePool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        with templates(tmp_path / "warm") as found:
            yield found


def open_devices(pid: int) -> list[str]:
    """The files of a GPU's driver that a process has open: a context has some."""
    names = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()]
    return [name for name in names if name.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/dxg"))]


def test_two_warm_starts_from_a_template_without_a_context(
    kept: TemplatePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for number in range(3):
        if number == 2:
            monkeypatch.setenv(template_client.COLD_VARIABLE, "1")
        started = exact.start(tmp_path / str(number), [*SETTINGS[:2], "data.num_workers=0", "threads=auto"])
        assert exact.wait(started) == 0, (started.package / "_output.txt").read_text()[-2000:]
        assert is_warm(started) is (number < 2)
        results.append(exact.fingerprint(started.package))
        [template] = kept._workers.values()
        assert open_devices(template.process.pid) == []
    assert results[0] == results[1] == results[2]
