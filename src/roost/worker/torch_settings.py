"""What `determinism` and `threads` ask of torch: how much speed is given for the same bits again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from roost.config.settings import Settings

_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")
"""The workspaces with which cuBLAS adds up in one order; torch refuses to multiply with any other."""
_NEVER, _WARN = 0, 1
"""Of `torch.get_deterministic_debug_mode`."""


def apply(settings: Settings, *, device: str, first: Mapping[str, Any] | None) -> None:
    """Sets threads, kernels and precisions of this process, for what `determinism` asks:

    - off: cuDNN tries which of its kernels is fastest here, and TF32 is allowed.
    - seeded: cuDNN's deterministic kernels, without trying; precisions as torch has them. On the CPU torch's
      deterministic algorithms, where there are some; what has none warns.
    - strict: deterministic algorithms only (what has none is an error), cuBLAS's among them, and no TF32.

    To be called once, before the project is imported, so that what its code asks of torch holds; and before
    CUDA starts, because cuBLAS reads its variable then.

    Args:
        settings: The run's.
        device: Where it computes.
        first: environment.json of the session that began the run; None in that one.
    """
    before = first["stack"] if first is not None else {}
    asked = settings.determinism
    _set_threads(settings, before)
    torch.backends.cudnn.benchmark = asked == "off"
    torch.backends.cudnn.deterministic = asked != "off"
    if asked != "seeded":
        _allow_tf32(asked == "off")
    if asked == "strict":
        _set_workspace(before.get("cublas_workspace"))
        torch.use_deterministic_algorithms(True)
        return
    on_cpu = asked == "seeded" and torch.device(device).type == "cpu"
    # With two threads the gradient of x[i] is another one each time. By this name, because that of
    # use_deterministic_algorithms imports torch.compile's back end, which takes a second.
    torch.set_deterministic_debug_mode("warn" if on_cpu else "default")
    if on_cpu:
        # Filling what torch.empty gives costs time at each call.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def inexact_reasons(device: str) -> list[str]:
    """Why the same run may give other bits each time, by what is in force now: the project's code may have
    asked torch for something else."""
    mode, kind = torch.get_deterministic_debug_mode(), torch.device(device).type
    if kind == "cuda" and mode == _NEVER:
        return ["CUDA without deterministic algorithms (determinism: strict sets them)"]
    if kind == "cuda" and mode == _WARN:
        return ["CUDA with deterministic algorithms that only warn (determinism: strict insists on them)"]
    if kind == "cpu" and mode == _NEVER and torch.get_num_threads() > 1:
        return ["several threads without deterministic algorithms (determinism: seeded sets them)"]
    return []


def _set_threads(settings: Settings, before: Mapping[str, Any]) -> None:
    """The threads of one operation: as configured, else as when the run began, because another number of
    threads adds up in another order."""
    if settings.threads != "auto":
        torch.set_num_threads(settings.threads)
    elif "threads" in before:
        torch.set_num_threads(int(before["threads"]))


def _allow_tf32(allowed: bool) -> None:
    """Says whether matrix products and convolutions may round their factors to 10 bits.

    By the old names: they set the new ones of torch 2.9 (`fp32_precision`) as well. After those alone the old
    ones can no longer be read, and torch.compile reads them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9.0 says that the old names will go
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        torch.backends.cudnn.allow_tf32 = allowed


def _set_workspace(before: object) -> None:
    """cuBLAS's workspace: the person's own if it will do, else that of the run's beginning."""
    asked = os.environ.get(_VARIABLE)
    if asked in _DETERMINISTIC_WORKSPACES:
        return
    value = str(before) if before in _DETERMINISTIC_WORKSPACES else _DETERMINISTIC_WORKSPACES[0]
    os.environ[_VARIABLE] = value
    if asked:
        said = f"{_VARIABLE}={asked} became {value}: determinism: strict needs {' or '.join(_DETERMINISTIC_WORKSPACES)}"
        print(said, flush=True)
