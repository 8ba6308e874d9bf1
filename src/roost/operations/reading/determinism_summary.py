"""What a run asked of torch for the same bits again, and what was in force when it began."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from roost.base import safe_read
from roost.operations.reading.package_schema import DamagedPackage, printable
from roost.package import environment


@dataclass(frozen=True)
class DeterminismSummary:
    """How far the run can be repeated bit for bit."""

    asked: str | None
    """The setting when the run began; None where an older version of roost began it."""
    threads: int | None
    algorithms: str
    """Of torch, deterministic ones: off, warn (where there is none another one is taken) or only."""
    tf32: list[str]
    """Where float32 may be rounded to TF32: matrix products, convolutions, recurrent layers."""
    cudnn_benchmark: bool | None
    """Whether cuDNN tries which kernel is fastest; None where it takes no part."""


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
    """Reads it from environment.json; None before the worker has written that.

    Raises:
        DamagedPackage: The file is not as roost writes it.
    """
    try:
        found = msgspec.json.decode(safe_read.read(package / environment.NAME), type=_Environment)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
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
