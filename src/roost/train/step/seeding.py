"""Where randomness comes from: every stream is a pure function of the run's seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_MASK = (1 << 64) - 1


def mix(*parts: int | str) -> int:
    """A 63-bit seed from whole numbers and names, each bit depending on all of them (splitmix64 rounds;
    Steele, Lea and Flood, OOPSLA 2014). Python's own hash of a string differs between processes."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        if isinstance(part, str):
            part = int.from_bytes(part.encode(), "little") % _MASK
        state = (state ^ (part & _MASK)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1


def seed_all(seed: int) -> None:
    """Seeds the global generators of torch (all devices), NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def seed_sample(seed: int, epoch: int, index: int) -> None:
    """Seeds the CPU generators for one sample of a dataset; costs about 9 µs.

    So what a sample draws does not depend on who fetches it, nor on what was fetched before.
    """
    _seed_cpu(mix(seed, epoch, index))


def _seed_cpu(seed: int) -> None:
    # Not torch.manual_seed: it would visit every device.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def uses_cuda() -> bool:
    """Whether this process has a CUDA context."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def rng_state(*, devices: bool = True) -> dict[str, Any]:
    """The state of every global generator, as plain data and arrays.

    Of CUDA's it is the current device's, and only where CUDA is in use: a process trains on one, and asking
    for a state opens a context. ``devices = False`` leaves all but the CPU's out.
    """
    cuda = devices and uses_cuda()
    mps = devices and torch.backends.mps.is_available()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if cuda else [],
        "mps": [torch.mps.get_rng_state()] if mps else [],
        "numpy": {
            "name": name,
            "keys": np.asarray(keys),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "python": {"version": version, "numbers": np.array(numbers, dtype=np.uint32), "gauss": gauss},
    }


def set_rng_state(state: dict[str, Any]) -> list[str]:
    """Puts every global generator back to what `rng_state` gave.

    Returns:
        Why a device's generator could not be put back, one line each; the CPU's always can.
    """
    torch.set_rng_state(state["torch"])
    reasons = [
        *_set_device("CUDA", state["cuda"], torch.cuda if uses_cuda() else None),
        *_set_device("MPS", state["mps"], torch.mps if torch.backends.mps.is_available() else None),
    ]
    legacy = state["numpy"]
    np.random.set_state(
        (legacy["name"], legacy["keys"], legacy["position"], legacy["has_gauss"], legacy["cached"])
    )
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    return reasons


def _set_device(name: str, states: list[Any], device: Any) -> list[str]:
    if not states:
        return []
    said = f"the state of the {name} generator could not be restored"
    if device is None:
        return [f"{said}: {name} is not in use"]
    if len(states) != 1:
        return [f"{said}: it was saved for {len(states)} devices"]
    try:
        device.set_rng_state(states[0])
    except RuntimeError as error:  # another torch may keep another number of bytes
        return [f"{said}: {str(error).partition(chr(10))[0]}"]
    return []


@contextmanager
def isolated(seed: int | None = None, *, devices: bool = True) -> Iterator[None]:
    """Whatever is drawn inside leaves the generators outside as they were; ``seed`` seeds the inside.

    Costs about 0.1 ms: for a batch or a validation, not for a sample. With ``devices = False`` it is about
    the CPU's generators alone, which is all that fetching draws from.
    """
    state = rng_state(devices=devices)
    try:
        if seed is not None:
            (seed_all if devices else _seed_cpu)(seed)
        yield
    finally:
        set_rng_state(state)
