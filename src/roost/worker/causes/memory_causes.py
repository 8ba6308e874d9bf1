"""Causes of a failed allocation: out of memory on a GPU or on the host."""

from __future__ import annotations

import os
import re

from roost.base.exception_record import ExceptionRecord
from roost.base.system.host_memory import available_bytes
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, gib

_SIZE = r"(\d+(?:\.\d+)? (?:bytes|[KMGT]iB))"
_REQUESTED = re.compile(rf"Tried to allocate {_SIZE}")
_DEVICE = re.compile(r"\bGPU (\d+)\b")
# The second form is that of torch before 2.1; 2.1 and 2.2 wrote "capacty".
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}|; {_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch|; {_SIZE} already allocated")
_IDLE = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OTHERS = re.compile(rf"Process (\d+) has {_SIZE} memory in use")
_OWN_PROCESS = "this process has "
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return next(filter(None, match.groups()), None) if match else None


def _bytes(size: str | None) -> float:
    number, _, unit = (size or "0 bytes").partition(" ")
    return float(number) * _UNITS[unit]


def requested_mb(text: str) -> float | None:
    """Returns the size, in MB, of the request that torch's allocator refused; None if its error has none."""
    asked = _first(_REQUESTED, text)
    return _bytes(asked) / 2**20 if asked else None


def is_gpu_out_of_memory(raised: ExceptionRecord) -> bool:
    """Whether the error means that a GPU ran out of memory."""
    scene = FailureContext()
    return any(
        row(raised, scene) is not None for row in (gpu_out_of_memory, gpu_out_of_memory_without_numbers)
    )


def gpu_out_of_memory(raised: ExceptionRecord, scene: FailureContext) -> Cause | None:
    """torch's allocator ran out of GPU memory; its error has numbers."""
    is_known = raised.is_a("OutOfMemoryError") or raised.text.startswith("CUDA out of memory.")
    if not is_known or not raised.is_a("RuntimeError", "OutOfMemoryError"):
        return None
    text = raised.text
    asked, idle = _first(_REQUESTED, text), _first(_IDLE, text)
    device = _first(_DEVICE, text)
    words = f"GPU {device} is out of memory" if device else "the GPU is out of memory"
    if asked:
        description += f": {asked} more were requested"
    if (free := _first(_FREE, text)) and (total := _first(_TOTAL, text)):
        words += f", {free} of {total} are free"
    if allocated := _first(_ALLOCATED, text):
        words += f"; tensors hold {allocated}" + (f", torch keeps {idle} in reserve" if idle else "")
    # Where torch cannot tell its own process (in a container) it lists it like another one.
    others = _OTHERS.findall(text) if _OWN_PROCESS in text else []
    words += "".join(f"; process {pid} holds {size}" for pid, size in others)
    fixes = [_smaller_batches(raised, scene)]
    if others:
        fixes.insert(0, f"take another GPU, or end process {others[0][0]} if it is yours")
    if _bytes(idle) > _bytes(asked):
        fixes.append("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets torch use its reserve")
    return Cause(words, "; or ".join(fixes))


def _smaller_batches(raised: ExceptionRecord, scene: FailureContext) -> str:
    if any(frame.filename.endswith("/roost/train/evaluation.py") for frame in raised.frames):
        return "a smaller data.valid.batch_size (data.test.batch_size for the test)"
    data = scene.settings.get("data")
    size = data.get("batch_size") if isinstance(data, dict) else None
    if size == 1:
        return "a smaller model or smaller samples (data.batch_size is 1 already)"
    now = f" (now {size})" if isinstance(size, int) else ""
    halved = "" if scene.settings.get("precision") in ("bf16", "fp16") else "; precision: bf16"
    return (
        f"a smaller data.batch_size{now}; gradient_accumulation_steps, raised as much, keeps the samples of "
        f"a step{halved}"
    )


def gpu_out_of_memory_without_numbers(raised: ExceptionRecord, scene: FailureContext) -> Cause | None:
    """The driver's own word, and what cuBLAS and cuDNN make of it."""
    if not raised.is_a("RuntimeError"):
        return None
    if raised.text.startswith("CUDA error: out of memory"):
        words = "the GPU is out of memory (CUDA gives no numbers)"
    elif match := re.search(r"\bCU(BLAS|DNN)_STATUS_ALLOC_FAILED\b", raised.text):
        words = f"the GPU is probably out of memory: {match[0]}"
    else:
        return None
    return Cause(words, f"nvidia-smi shows who holds it; else {_smaller_batches(raised, scene)}")


_TORCH_REQUESTED = re.compile(
    r"DefaultCPUAllocator: can't allocate memory: you tried to allocate (\d+) bytes"
)
_NUMPY_REQUESTED = re.compile(
    r"Unable to allocate ([\d.]+ (?:bytes|[KMGTPE]iB)) for an array with shape (\(.*?\))"
)


def host_out_of_memory(raised: ExceptionRecord, scene: FailureContext) -> Cause | None:
    """Python's, NumPy's and torch's allocators on the host."""
    if raised.is_a("RuntimeError") and (match := _TORCH_REQUESTED.search(raised.text)):
        asked = f": {gib(int(match[1]))} were asked for at once"
    elif raised.name.endswith("MemoryError") and not raised.is_a("OutOfMemoryError"):
        match = _NUMPY_REQUESTED.match(raised.text)
        asked = f": {match[1]} were asked for at once, for an array of shape {match[2]}" if match else ""
    else:
        return None
    return Cause(
        f"the machine's memory does not suffice{asked} ({_host_memory()})",
        "look at the sizes in that line; else smaller batches, or fewer data.num_workers, "
        "which may each hold a copy of the data",
    )


def _host_memory() -> str:
    total = f"it has {gib(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"
    free = available_bytes()
    return f"{total}, {gib(free)} of it free now" if free is not None else total


CAUSES: tuple[CauseRule, ...] = (gpu_out_of_memory, gpu_out_of_memory_without_numbers, host_out_of_memory)
