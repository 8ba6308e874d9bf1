"""Code in packages of earlier versions imports modules by names that the docs gave it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.former_names import FORMER_NAMES


@pytest.mark.parametrize("name", FORMER_NAMES)
def test_a_former_name_has_the_objects_of_the_present_module(name: str) -> None:
    present = importlib.import_module(FORMER_NAMES[name])
    former = importlib.import_module(name)
    public = [one for one in vars(present) if not one.startswith("_")]
    assert public or name == "roost.train.plans"
    assert all(getattr(former, one) is getattr(present, one) for one in public)
    assert present.__spec__ is not None and present.__spec__.name == FORMER_NAMES[name]


def test_the_imports_of_the_earlier_docs(tmp_path: Path) -> None:
    """The lines of the guide, docs/devices.md and examples/plain_loop.py of e21167d, in a fresh process."""
    lines = [
        "from roost.train.average import Average",
        "from roost.train import simulated_memory",
        "from roost.train import seeding",
        "from roost.train.plans.plan import BatchPlan",
        "from roost.train.progress import Progress",
        "from roost.train.rank_state import RankState",
        "from roost.train.data.batches import Batch",
        "assert Batch(None, 1, True).last",
        "import roost; assert BatchPlan is roost.BatchPlan and Progress is roost.Progress",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_name_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("roost.train.never")
