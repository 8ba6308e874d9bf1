"""What torch can do here, by a child process with a time limit."""

from __future__ import annotations

import subprocess
import sys

import msgspec

PROBE_SECONDS = 60.0
"""The limit: a first import from a slow disk takes half a minute, and a driver may hang."""
_PROBE = (sys.executable, "-P", "-m", "roost.train.accelerators.torch_probe")


class TorchGpu(msgspec.Struct, frozen=True):
    """A GPU that torch sees."""

    name: str
    capability: tuple[int, int]


class TorchBuild(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `roost.train.accelerators.torch_probe`."""

    version: str = ""
    cuda: str | None = None
    """The CUDA for which it was built; None: another build."""
    hip: str | None = None
    available: bool = False
    """Whether it sees a GPU."""
    error: str = ""
    """Why it sees none, or cannot compute on it."""
    threads: int = 0
    architectures: list[str] = []
    """The generations of GPUs for which it has code: sm_80, compute_90."""
    gpus: list[TorchGpu] = []
    failure: str = ""
    """Why it cannot be imported; empty: it can."""


def probe_torch(timeout_seconds: float = PROBE_SECONDS, command: tuple[str, ...] = _PROBE) -> TorchBuild:
    """Returns what torch says of itself; a build with `TorchBuild.failure` if it cannot be imported in time.

    Args:
        timeout_seconds: After which the process is killed.
        command: The process.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return TorchBuild(failure=f"it was not imported within {timeout_seconds:g} s")
    except OSError as error:
        return TorchBuild(failure=str(error))
    try:
        return msgspec.json.decode(done.stdout.splitlines()[-1] if done.stdout else b"", type=TorchBuild)
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return TorchBuild(failure=lines[-1] if lines else f"its process ended with {done.returncode}")
