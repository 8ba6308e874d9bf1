"""The determinism of a run: its setting, and the state of torch when it began."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from roost.base import safe_read
from roost.operations.reading.package_schema import DamagedPackage, printable
from roost.package.resume import environment


@dataclass(frozen=True)
class DeterminismSummary:
    """The settings of torch that decide whether a run can be repeated bit for bit."""

    asked: str | None
    """The setting when the run began; None if an older version of roost began it."""
    threads: int | None
    algorithms: str
    """Deterministic algorithms of torch: off, warn (a nondeterministic one if there is no other) or only."""
    tf32: list[str]
    """Operations in which float32 may be rounded to TF32: matrix products, convolutions, recurrent layers."""
    cudnn_benchmark: bool | None
    """Whether cuDNN benchmarks its kernels; None if it is not used."""


class _Stack(msgspec.Struct):
    threads: int | None = None
    deterministic: bool = False
    deterministic_warn_only: bool = False
    matmul_precision: str | None = None
    convolution_precision: str | None = None
    rnn_precision: str | None = None
    cudnn_benchmark: bool | None = None


class _Environment(msgspec.Struct):
    stack: _Stack
    determinism: str | None = None


def read(package: Path) -> DeterminismSummary | None:
    """Reads environment.json; returns None before the worker has written it.

    Raises:
        DamagedPackage: The file is not as roost writes it.
    """
    try:
        found = msgspec.json.decode(safe_read.read(package / environment.NAME), type=_Environment)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedPackage(package, environment.NAME, str(error)) from error
    stack = found.stack
    precisions = {
        "matrix products": stack.matmul_precision,
        "convolutions": stack.convolution_precision,
        "recurrent layers": stack.rnn_precision,
    }
    return DeterminismSummary(
        asked=printable(found.determinism),
        threads=stack.threads,
        algorithms="off" if not stack.deterministic else "warn" if stack.deterministic_warn_only else "only",
        tf32=[where for where, precision in precisions.items() if precision == "tf32"],
        cudnn_benchmark=stack.cudnn_benchmark,
    )
