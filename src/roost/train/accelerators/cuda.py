"""NVIDIA's GPUs; and AMD's, as torch's builds for ROCm call them CUDA, too.

On ROCm `torch.version.hip` is set and `torch.version.cuda` is None, cuDNN is MIOpen, NCCL is RCCL (by the
name ``nccl``), and HIP_VISIBLE_DEVICES counts beside CUDA_VISIBLE_DEVICES. `roost.devices` asks NVIDIA's
driver alone, so there the lab has no cards, and a foreground run takes no leases.

Never run: no machine with a GPU was available. The calls and their order were compared with torch's source.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from roost.train.accelerators.accelerator import Accelerator, DeviceEvent, DeviceStream, float32_precision

_REDUCED_PRECISION = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",  # since torch 2.7
)
"""Switches of `torch.backends.cuda.matmul`: whether sums within a matrix product have 16 bits."""
_NUMERIC_VARIABLES = {
    "tf32_override": "NVIDIA_TF32_OVERRIDE",
    "nccl_algorithm": "NCCL_ALGO",
    "nccl_protocol": "NCCL_PROTO",
}
"""Variables that NVIDIA's libraries read, past torch's settings."""


class Cuda(Accelerator):
    """CUDA and ROCm. Each method is one call of `torch.cuda`, so a reader sees when the host waits."""

    copies_concurrently = True
    times_events = True
    reports_memory = True
    always_has_fp16 = True
    is_nondeterministic = True
    collective_backend = "nccl"

    def __init__(self) -> None:
        super().__init__("cuda", "CUDA")

    # ---- the devices of this machine --------------------------------------------------------------------

    def is_available(self) -> bool:
        return torch.cuda.is_available()

    def is_initialized(self) -> bool:
        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

    def count(self) -> int:
        return torch.cuda.device_count()

    def current_index(self) -> int:
        return torch.cuda.current_device()

    def set_current(self, device: torch.device) -> None:
        if device.index is not None:
            torch.cuda.set_device(device)

    def use_device(self, device: torch.device) -> AbstractContextManager[object]:
        return torch.cuda.device(device)

    def why_unavailable(self) -> str:
        return f"no GPU is visible: {why_no_gpu()}"

    def model(self, device: torch.device | str) -> str | None:
        return torch.cuda.get_device_name(device)

    def uuid(self, index: int) -> str | None:
        found = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        return str(found) if found is not None else None

    def properties(self) -> list[dict[str, Any]]:
        found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        return [
            {
                "name": gpu.name,
                "memory_mb": gpu.total_memory >> 20,
                "capability": f"{gpu.major}.{gpu.minor}",
                "uuid": str(getattr(gpu, "uuid", "")),  # since torch 2.5 or so
            }
            for gpu in found
        ]

    def versions(self) -> dict[str, Any]:
        return {
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "cublas": _cublas_version(),
            "nccl": _nccl_version(),
        }

    def numeric_flags(self) -> dict[str, Any]:
        cudnn: Any = torch.backends.cudnn
        return {
            "matmul_precision": float32_precision(torch.backends.cuda.matmul),
            "convolution_precision": float32_precision(getattr(cudnn, "conv", cudnn)),
            "rnn_precision": float32_precision(getattr(cudnn, "rnn", cudnn)),
            "cudnn_benchmark": cudnn.benchmark,
            "cudnn_deterministic": cudnn.deterministic,
            "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
            **{name: getattr(torch.backends.cuda.matmul, name, None) for name in _REDUCED_PRECISION},
            **{key: os.environ.get(variable) for key, variable in _NUMERIC_VARIABLES.items()},
        }

    def inexact_reasons(self, module: nn.Module) -> list[str]:
        # The dropout between the layers of an RNN has a generator of cuDNN's own (MIOpen's), for each device.
        # Torch seeds it at its first use, from CUDA's, and has no function that reads or sets it.
        found = super().inexact_reasons(module)
        if not torch.backends.cudnn.enabled:
            return found
        return found + [
            f"the dropout between the layers of {name or type(one).__name__}, whose random generator belongs "
            "to cuDNN and cannot be saved (nn.Dropout between single layers can)"
            for name, one in module.named_modules()
            if isinstance(one, nn.RNNBase) and one.dropout > 0 and one.num_layers > 1
        ]

    # ---- random numbers ---------------------------------------------------------------------------------

    def generators(self) -> Sequence[torch.Generator]:
        return torch.cuda.default_generators

    # ---- work -------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def current_stream(self, device: torch.device) -> DeviceStream:
        return torch.cuda.current_stream(device)

    def new_stream(self, device: torch.device) -> DeviceStream:
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def use_stream(self, stream: DeviceStream) -> AbstractContextManager[object]:
        return torch.cuda.stream(stream)  # type: ignore[arg-type]

    def timed_event(self) -> DeviceEvent:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        return torch.profiler.ProfilerActivity.CUDA

    # ---- memory -----------------------------------------------------------------------------------------

    def reserved_bytes(self, index: int) -> int:
        return torch.cuda.memory_reserved(index)

    def peak_reserved_bytes(self, index: int) -> int:
        return torch.cuda.max_memory_reserved(index)

    def peak_allocated_bytes(self, index: int) -> int:
        return torch.cuda.max_memory_allocated(index)

    def reset_peaks(self, index: int) -> None:
        torch.cuda.reset_peak_memory_stats(index)

    def out_of_memory_count(self, index: int) -> int:
        return int(torch.cuda.memory_stats(index).get("num_ooms", 0))

    def free_and_total_bytes(self, index: int) -> tuple[int, int]:
        return torch.cuda.mem_get_info(index)

    def total_bytes(self, index: int) -> int:
        return int(torch.cuda.get_device_properties(index).total_memory)

    def limit_memory(self, fraction: float, index: int) -> None:
        torch.cuda.set_per_process_memory_fraction(fraction, index)

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()  # does nothing before CUDA is in use

    # ---- numbers ----------------------------------------------------------------------------------------

    def computes_with(self, dtype: torch.dtype, device: torch.device) -> bool:
        # An older GPU emulates bf16, several times slower than float32: that is not support.
        if dtype is torch.bfloat16:
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return super().computes_with(dtype, device)

    def has_fused(self, optimizer: str) -> bool:
        return not optimizer.endswith(".Adagrad")  # torch 2.6 has none


def _cublas_version() -> str | None:
    """Returns the version of the loaded cuBLAS; torch has no function for it. None on ROCm, and where torch
    was linked with it statically."""
    try:
        library = ctypes.CDLL(f"libcublas.so.{(torch.version.cuda or '').partition('.')[0]}")
        numbers = [ctypes.c_int() for _ in ("major", "minor", "patch")]
        for part, number in enumerate(numbers):
            library.cublasGetProperty(part, ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return ".".join(str(number.value) for number in numbers)


def _nccl_version() -> str | None:
    """Returns the version of NCCL, or of RCCL; None if torch was built without it."""
    if not hasattr(torch._C, "_nccl_version"):
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def why_no_gpu() -> str:
    """Returns the reason why torch sees no GPU on this machine."""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA"
    of_rocm = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES") if torch.version.hip is not None else ()
    for variable in (*of_rocm, "CUDA_VISIBLE_DEVICES"):
        if (visible := os.environ.get(variable)) is not None:
            return f"{variable} is {visible!r}"
    program = "rocm-smi" if torch.version.hip is not None else "nvidia-smi"
    return f"there is none, or its driver is not loaded ({program} shows it)"
