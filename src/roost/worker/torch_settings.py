"""The settings `determinism` and `threads`, applied to torch: speed against reproducible bits."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from roost.base.system import cpu_cores
from roost.config.run_settings import RunSettings
from roost.train.accelerators.registry import accelerator_of

_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")
"""Workspaces with which cuBLAS sums in a fixed order; in deterministic mode torch refuses all others."""
_NEVER, _WARN = 0, 1
"""Values of `torch.get_deterministic_debug_mode`."""
_THREADS_VARIABLE = "OMP_NUM_THREADS"


def apply(settings: RunSettings, *, device: str, first: Mapping[str, Any] | None) -> None:
    """Sets threads, kernels and precisions of this process according to `determinism`:

    - off: cuDNN benchmarks its kernels and takes the fastest; TF32 is allowed.
    - seeded: cuDNN's deterministic kernels, no benchmark; torch's default precisions. On the CPU torch's
      deterministic algorithms; an operation without one warns.
    - strict: deterministic algorithms only, cuBLAS's included (an operation without one raises); no TF32.

    Last, makes the device the current one: the project's code may mean it by ``"cuda"``, and its generator is
    the one that checkpoints hold.

    Call it once, before the project is imported, so that torch settings made by the project's code win; and
    before CUDA starts, because cuBLAS reads its environment variable at that moment.

    Args:
        settings: RunSettings of the run.
        device: Device of the run.
        first: environment.json of the run's first session; None in that session.
    """
    before = first["stack"] if first is not None else {}
    level = settings.determinism
    _set_threads(settings, before)
    _set_kernels(level, before, device=device)
    accelerator_of(device).set_current(torch.device(device))


def _set_kernels(level: str, before: Mapping[str, Any], *, device: str) -> None:
    torch.backends.cudnn.benchmark = level == "off"
    torch.backends.cudnn.deterministic = level != "off"
    if level != "seeded":
        _allow_tf32(level == "off")
    if level == "strict":
        _set_workspace(before.get("cublas_workspace"))
        torch.use_deterministic_algorithms(True)
        return
    on_cpu = level == "seeded" and torch.device(device).type == "cpu"
    # With two threads the gradient of x[i] differs from time to time. This function is used because
    # use_deterministic_algorithms imports torch.compile's back end, which takes a second.
    torch.set_deterministic_debug_mode("warn" if on_cpu else "default")
    if on_cpu:
        # Filling the result of torch.empty would cost time at each call.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def inexact_reasons(device: str) -> list[str]:
    """Returns why the same run may give other bits each time. Reads torch's current state, because the
    project's code may have changed it."""
    mode, kind = torch.get_deterministic_debug_mode(), torch.device(device).type
    accelerator = accelerator_of(device)
    if accelerator.is_nondeterministic and mode == _NEVER:
        return [f"{accelerator.label} without deterministic algorithms (determinism: strict sets them)"]
    if accelerator.is_nondeterministic and mode == _WARN:
        only_warn = "deterministic algorithms that only warn (determinism: strict requires them)"
        return [f"{accelerator.label} with {only_warn}"]
    if kind == "cpu" and mode == _NEVER and torch.get_num_threads() > 1:
        return ["several threads without deterministic algorithms (determinism: seeded sets them)"]
    return []


def _set_threads(settings: RunSettings, before: Mapping[str, Any]) -> None:
    """Sets the threads of one operation: as configured, else as in the run's first session, because another
    number of threads sums in another order; in that session as many as there are usable cores.

    Torch is always given the number: MKL uses its threads otherwise if it may choose how many.
    """
    if settings.threads != "auto":
        threads = settings.threads
    elif "threads" in before:
        threads = int(before["threads"])
    else:  # torch does not know the quotas of control groups
        threads = torch.get_num_threads()
        threads = threads if _THREADS_VARIABLE in os.environ else min(threads, cpu_cores.usable_cores())
    torch.set_num_threads(threads)


def _allow_tf32(allowed: bool) -> None:
    """Sets whether matrix products and convolutions may round their factors to 10 bits (TF32).

    Uses the old names, which also set the new ones of torch 2.9 (`fp32_precision`). If only the new ones are
    set, the old ones can no longer be read, and torch.compile reads them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9.0 warns that the old names will be removed
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        torch.backends.cudnn.allow_tf32 = allowed


def _set_workspace(before: object) -> None:
    """Sets cuBLAS's workspace: the user's value if it is deterministic, else that of the first session."""
    given = os.environ.get(_VARIABLE)
    if given in _DETERMINISTIC_WORKSPACES:
        return
    value = str(before) if before in _DETERMINISTIC_WORKSPACES else _DETERMINISTIC_WORKSPACES[0]
    os.environ[_VARIABLE] = value
    if given:
        allowed = " or ".join(_DETERMINISTIC_WORKSPACES)
        print(f"{_VARIABLE}={given} became {value}: determinism: strict needs {allowed}", flush=True)
