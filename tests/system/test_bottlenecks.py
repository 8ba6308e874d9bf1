"""The five bottlenecks of tests/system/bottlenecks_project, each so large that no busy machine hides it. What
mending them gains is measured by bench/bottlenecks.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.programs import roost

PROJECT = Path(__file__).parent / "bottlenecks_project"
ALL = ("max_steps=40", "profile.seconds=3", "width=64")
CASES = {
    "reading": (
        ("bottleneck=reading", "latency=0.1", "data.batch_size=4", "data.num_workers=1", "max_steps=15"),
        "data.num_workers",
    ),
    "transform": (("bottleneck=transform", "data.batch_size=16", "max_steps=25"), ""),
    "launch": (("data.batch_size=1", "max_steps=600"), "data.batch_size"),
    "logging": (
        ("data.batch_size=8", "+statistics.every=1", "+statistics.histograms=true"),
        "statistics.every",
    ),
    "validation": (
        ("bottleneck=validation", "data.batch_size=8", "data.valid.batch_size=64", "validate_every=2"),
        "validate_every",
    ),
    "compute": (("width=2048", "data.batch_size=128", "max_steps=15", "data.num_workers=1"), ""),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_bottleneck_is_named(kind: str, tmp_path: Path) -> None:
    shutil.copytree(PROJECT, tmp_path / "project")
    config = tmp_path / "project" / "config.yaml"
    overrides, named = CASES[kind]
    ran = roost("run", config, "--name", "slow", *ALL, *overrides)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    package = tmp_path / "project" / "runs" / "slow"
    found = json.loads(roost("profile", package, "--json").stdout)
    first = found["bottlenecks"][0]
    assert first["kind"] == kind, found
    assert f"{kind}: {first['text']}" in ran.stdout, "the run says it, too"
    assert Path(found["picture"]).read_text().startswith("<svg ")
    if kind == "compute":
        assert len(found["bottlenecks"]) == 1
    elif kind == "transform":
        assert "distort Dataset.py" in first["text"]
    else:
        assert first["setting"] == named and first["speedup"] > 1.3
    if kind == "reading":
        assert "read Dataset.py" in first["text"]


def test_a_run_without_a_profile_is_read_by_its_rows(tmp_path: Path) -> None:
    shutil.copytree(PROJECT, tmp_path / "project")
    config = tmp_path / "project" / "config.yaml"
    overrides = ("max_steps=15", "width=64", "bottleneck=reading", "data.batch_size=8", "~profile")
    assert roost("run", config, "--name", "slow", *overrides).returncode == 0
    package = tmp_path / "project" / "runs" / "slow"
    found = json.loads(roost("profile", package, "--json").stdout)
    assert found["session"] is None and found["picture"] is None
    assert found["bottlenecks"][0]["kind"] == "loading" and "profile.seconds=20" in found["notes"][0]
    shown = roost("profile", package)
    assert "loading: " in shown.stdout and "note: " in shown.stdout
    refused = roost("profile", package, "--session", "1")
    assert refused.returncode == 3 and "session 1 has no profile" in refused.stderr
    again = roost("rerun", package, "--name", "measured", "profile.seconds=2")
    assert again.returncode == 0, again.stdout + again.stderr
    measured = json.loads(roost("profile", package.parent / "measured", "--json").stdout)
    assert measured["session"] == 1 and measured["bottlenecks"][0]["kind"] == "reading"
