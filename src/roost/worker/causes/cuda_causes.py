"""Causes with CUDA: a GPU that torch cannot see or use, and tensors on the wrong device."""

from __future__ import annotations

import re
import sys

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, rule_by_text

_ON_CPU = 'write self.device instead of "cuda" in the project to run without a GPU'
_NO_GPU_TEXTS = (
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver on your system",
    "CUDA error: no CUDA-capable device is detected",
)


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    return f"torch {torch.__version__}" if torch is not None else "this torch"


def _torch_cuda_version() -> str | None:
    """Returns the CUDA version that torch was built for; None without CUDA."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "version", None), "cuda", None)


def no_gpu(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """The project uses CUDA where no GPU is visible."""
    if not record.is_a("AssertionError", "RuntimeError") or not record.text.startswith(_NO_GPU_TEXTS):
        return None
    if record.text.startswith("Torch not compiled"):
        why, mend = f"{_torch_version()} was built without CUDA", "; install a torch with CUDA to use one"
    else:
        from roost.train.accelerators.cuda import why_no_gpu  # imports torch, which raised the error

        why, mend = why_no_gpu(), ""
    return Cause(f"no GPU is visible: {why}", _ON_CPU + mend)


_FOUND = re.compile(r"\s*The NVIDIA driver on your system is too old \(found version (\d+)\)")


def old_driver(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """torch was built for a newer CUDA than the driver supports."""
    match = _FOUND.match(record.text) if record.is_a("RuntimeError", "AssertionError") else None
    if match is None:
        return None
    number = int(match[1])
    supported = f"{number // 1000}.{number % 1000 // 10}"
    needed = f"for CUDA {_torch_cuda_version()}" if _torch_cuda_version() else "for a newer one"
    return Cause(
        f"the NVIDIA driver is too old for this torch: it supports CUDA {supported}, "
        f"{_torch_version()} was built {needed}",
        f"install a torch that was built for CUDA {supported} or older, or a newer driver",
    )


def no_kernel(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """Compiled code without kernels for this GPU's architecture."""
    if not record.is_a("RuntimeError") or "no kernel image is available for execution" not in record.text:
        return None
    torch = sys.modules.get("torch")
    knows = " ".join(torch.cuda.get_arch_list()) if torch is not None else ""
    return Cause(
        f"compiled code was not built for this kind of GPU ({_torch_version()}"
        + (f" is built for {knows})" if knows else ")"),
        "install a torch that is; if your own extension raised it, rebuild that with TORCH_CUDA_ARCH_LIST",
    )


_TWO_DEVICES = re.compile(
    r"Expected all tensors to be on the same device, but found at least two devices, (\S+) and (\S+)!"
    r"|Tensor on device (\S+) is not on the expected device (\S+)!"
)
_TYPES = re.compile(
    r"Input type \(torch\.(cuda\.)?\w+\) and (?:weight|bias) type \(torch\.(cuda\.)?\w+\) should be"
)


def two_devices(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """Tensors on different devices in one operation."""
    if not record.is_a("RuntimeError"):
        return None
    if match := _TWO_DEVICES.match(record.text):
        one, other = filter(None, match.groups())
    elif (match := _TYPES.match(record.text)) and match[1] != match[2]:
        one, other = ("GPU", "CPU") if match[1] else ("CPU", "GPU")
    elif record.text.startswith("Expected all tensors to be on the same device"):
        return Cause("one operation got tensors on different devices", _SAME_DEVICE_FIX)
    else:
        return None
    return Cause(f"one operation got tensors on two devices: {one} and {other}", _SAME_DEVICE_FIX)


_SAME_DEVICE_FIX = (
    "create tensors with device=self.device, or keep them as buffers (self.register_buffer in build()); of a "
    "batch Runner.to_device moves tensors, lists, mappings and objects with .to(): override it for others"
)

CAUSES: tuple[CauseRule, ...] = (
    no_gpu,
    old_driver,
    no_kernel,
    two_devices,
    rule_by_text(
        "RuntimeError",
        r"CUDA error: device-side assert triggered",
        "a check inside a GPU kernel failed, most often an index or a class label out of range; "
        "the line shown here may be a later one",
        "run it with CUDA_LAUNCH_BLOCKING=1 or -CPU, which shows the right line; "
        "the output above may name the assertion",
    ),
    rule_by_text(
        "RuntimeError",
        r"CUDA error: invalid device ordinal",
        "the project names a GPU that does not exist or is not visible",
        "write self.device instead of a number",
    ),
    rule_by_text(
        "RuntimeError",
        r"Cannot re-initialize CUDA in forked subprocess",
        "the dataset uses the GPU inside a loader worker, which is not possible",
        "keep samples on the CPU (the Runner moves batches), or set data.num_workers: 0",
    ),
)
