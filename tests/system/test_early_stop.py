"""A run that ended by patience, and its package afterwards."""

from __future__ import annotations

import re
from pathlib import Path

import exact
import pytest

from roost.package.package import PackageFolder

_STOPPING = "early_stopping={monitor: valid/likelihood, mode: max, patience: 2, min_delta: 1000.0}"


def step(package: Path) -> int:
    """Of the newest checkpoint."""
    return PackageFolder.open(package).store().lineage()[-1].step


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_it_stays_finished_unless_patience_is_raised(tmp_path: Path) -> None:
    """The metric is negative, and no value improves so much on the first: validated at 11, 12 and 22."""
    started = exact.start(tmp_path, [_STOPPING])
    package = started.package
    assert exact.wait(started) == 0 and PackageFolder.open(package).state == "succeeded"
    stopped = step(package)
    assert stopped < 48
    assert re.search(r"valid/likelihood\b.* 2 .* -\d", PackageFolder.open(package).output.read_text())
    again = exact.go_on(package, [])
    assert again.session is None and step(package) == stopped, "there is nothing to do"
    assert again.notes[0].endswith(" early_stopping.patience=4")
    other = exact.go_on(package, ["log_every=5"])
    assert other.session is not None and exact.wait(other) == 0 and step(package) == stopped
    more = exact.go_on(package, ["early_stopping.patience=3"])
    assert exact.wait(more) == 0 and PackageFolder.open(package).state == "succeeded"
    assert step(package) > stopped
    validated = PackageFolder.open(package).records().series["valid/likelihood"][0]
    assert len(validated) == 4 and validated[-1] == step(package)
