"""A machine that is lost at a random moment costs the steps after "durable up to", and no bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import exact
import pytest
import remote_cuts


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the run without interruption."""
    started = exact.start(tmp_path_factory.mktemp("reference"), ["net=mlp", remote_cuts.SLOW])
    assert exact.wait(started) == 0
    return exact.fingerprint(started.package)


@pytest.mark.timeout(300)
def test_a_run_that_is_cut_three_times_ends_with_the_same_bits(tmp_path: Path, uninterrupted: Any) -> None:
    url = str(tmp_path / "store")
    started = remote_cuts.begin(tmp_path / "first", url)
    for number, step in enumerate((5, 15, 30)):
        assert remote_cuts.wait_until_durable(started, step, url), "the run ended before"
        lost = remote_cuts.cut(started, url)
        assert lost.durable >= step
        package = remote_cuts.pull(url, started.package.name, tmp_path / f"home-{number}")
        started = exact.go_on(package, [])
    assert exact.wait(started) == 0
    starts = remote_cuts.start_steps(started.package)
    assert starts[0] == 0
    assert all(start >= step for start, step in zip(starts[1:], (5, 15, 30), strict=True))
    assert exact.fingerprint(started.package) == uninterrupted
    index = remote_cuts.copied(url, started.package.name)
    assert index is not None
    assert index.ended
    assert index.step == uninterrupted["step"]


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_twenty_random_cuts(tmp_path: Path) -> None:
    cuts = remote_cuts.random_cuts(tmp_path, str(tmp_path / "store"), 20, random.Random(0))
    assert len(cuts) == 20
    print("steps trained again:", sorted(one.step - one.durable for one in cuts))
