from __future__ import annotations

import os
import subprocess
import sys

import pytest

from roost.base.system import spin_limit

TORCH = "from roost.base.system import spin_limit; spin_limit.set_default(); import torch"


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_the_choice_of_the_user_remains(own: dict[str, str]) -> None:
    env = dict(own)
    spin_limit.set_default(env)
    assert env == own


@pytest.mark.skipif(sys.platform != "linux", reason="another OpenMP")
def test_torch_reads_the_limit() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    shown = subprocess.run(
        [sys.executable, "-c", TORCH],
        env={**env, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stderr
    assert "GOMP_SPINCOUNT = '1000'" in shown
