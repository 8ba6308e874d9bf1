"""Causes of a failed allocation: out of memory on a GPU or on the host."""

from __future__ import annotations

import os
import re

from roost.base.exception_record import ExceptionRecord
from roost.base.system.host_memory import available_bytes
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, gib

_SIZE = r"(\d+(?:\.\d+)? (?:bytes|[KMGT]iB))"
_REQUESTED = re.compile(rf"Tried to allocate {_SIZE}")
_UUID_CHARACTERS = 16
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
    requested = _first(_REQUESTED, text)
    return _bytes(requested) / 2**20 if requested else None


def is_gpu_out_of_memory(record: ExceptionRecord) -> bool:
    """Whether the error means that a GPU ran out of memory."""
    context = FailureContext()
    return any(
        row(record, context) is not None for row in (gpu_out_of_memory, gpu_out_of_memory_without_numbers)
    )


def gpu_out_of_memory(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """torch's allocator ran out of GPU memory; its error has numbers."""
    is_known = record.is_a("OutOfMemoryError") or record.text.startswith("CUDA out of memory.")
    if not is_known or not record.is_a("RuntimeError", "OutOfMemoryError"):
        return None
    text = record.text
    requested, idle = _first(_REQUESTED, text), _first(_IDLE, text)
    device = _first(_DEVICE, text)
    description = f"{_card_name(int(device))} is out of memory" if device else "the GPU is out of memory"
    if requested:
        description += f": {requested} more were requested"
    if (free := _first(_FREE, text)) and (total := _first(_TOTAL, text)):
        description += f", {free} of {total} are free"
    if allocated := _first(_ALLOCATED, text):
        description += f"; tensors hold {allocated}" + (f", torch keeps {idle} in reserve" if idle else "")
    # Where torch cannot tell its own process (in a container) it lists it like another one.
    others = _OTHERS.findall(text) if _OWN_PROCESS in text else []
    description += "".join(f"; process {pid} holds {size}" for pid, size in others)
    fixes = [_smaller_batches(record, context)]
    if others:
        fixes.insert(0, f"use another GPU, or end process {others[0][0]} if it is yours")
    if _bytes(idle) > _bytes(requested):
        fixes.append(
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that torch can use its reserve"
        )
    return Cause(description, "; or ".join(fixes))


def _card_name(device: int) -> str:
    """Returns the name that `roost devices` understands of a card that torch counts among the visible ones: a
    task on GPU 3 sees it as number 0."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    name = visible[device].strip() if device < len(visible) else ""
    return name[:_UUID_CHARACTERS] if name and not name.isdecimal() else f"GPU {name or device}"


def _smaller_batches(record: ExceptionRecord, context: FailureContext) -> str:
    if any(frame.filename.endswith("/roost/train/evaluation/split_evaluation.py") for frame in record.frames):
        return "use a smaller data.valid.batch_size (data.test.batch_size for the test)"
    is_half = context.settings.get("precision") in ("bf16", "fp16")
    halved = "" if is_half else f"; or {context.key('precision')}: bf16"
    if context.is_dlnest:  # its batches are the project's own
        return f"use smaller batches{halved}"
    data = context.settings.get("data")
    size = data.get("batch_size") if isinstance(data, dict) else None
    if size == 1:
        return "use a smaller model or smaller samples (data.batch_size is 1 already)"
    now = f" (now {size})" if isinstance(size, int) else ""
    return (
        f"use a smaller data.batch_size{now}; gradient_accumulation_steps, raised by the same factor, keeps "
        f"the samples of a step{halved}"
    )


def gpu_out_of_memory_without_numbers(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """The driver, cuBLAS or cuDNN ran out of GPU memory; their errors have no numbers."""
    if not record.is_a("RuntimeError"):
        return None
    if record.text.startswith("CUDA error: out of memory"):
        description = "the GPU is out of memory (CUDA gives no numbers)"
    elif match := re.search(r"\bCU(BLAS|DNN)_STATUS_ALLOC_FAILED\b", record.text):
        description = f"the GPU is probably out of memory: {match[0]}"
    else:
        return None
    return Cause(
        description,
        f"look with nvidia-smi for other processes on it; else {_smaller_batches(record, context)}",
    )


_TORCH_REQUESTED = re.compile(
    r"DefaultCPUAllocator: can't allocate memory: you tried to allocate (\d+) bytes"
)
_NUMPY_REQUESTED = re.compile(
    r"Unable to allocate ([\d.]+ (?:bytes|[KMGTPE]iB)) for an array with shape (\(.*?\))"
)


def host_out_of_memory(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """An allocation of Python, NumPy or torch failed on the host."""
    if record.is_a("RuntimeError") and (match := _TORCH_REQUESTED.search(record.text)):
        requested = f": {gib(int(match[1]))} were requested at once"
    elif record.name.endswith("MemoryError") and not record.is_a("OutOfMemoryError"):
        match = _NUMPY_REQUESTED.match(record.text)
        requested = f": {match[1]} were requested at once, for an array of shape {match[2]}" if match else ""
    else:
        return None
    return Cause(
        f"the machine is out of memory{requested} ({_host_memory()})",
        "check the sizes in that line; else use smaller batches, or fewer data.num_workers, "
        "which may each hold a copy of the data",
    )


def _host_memory() -> str:
    total = f"it has {gib(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"
    free = available_bytes()
    return f"{total}, {gib(free)} of it free now" if free is not None else total


CAUSES: tuple[CauseRule, ...] = (gpu_out_of_memory, gpu_out_of_memory_without_numbers, host_out_of_memory)
