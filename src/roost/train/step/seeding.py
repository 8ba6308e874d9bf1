"""Seeds and states of random generators: every random stream is a pure function of the run's seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from roost.train.accelerators.accelerator import Accelerator
from roost.train.accelerators.registry import ACCELERATORS

_MASK = (1 << 64) - 1


def mix(*parts: int | str) -> int:
    """Returns a 63-bit seed from whole numbers and names; each bit depends on all of them (splitmix64 rounds;
    Steele, Lea and Flood, OOPSLA 2014). Python's hash of a string would differ between processes."""
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

    So the random numbers of a sample depend neither on the process that fetches it nor on earlier samples.
    """
    _seed_cpu(mix(seed, epoch, index))


def seed_batch(seed: int) -> None:
    """Seeds the global generators that are in use, for one batch of an evaluation. Much cheaper than
    `seed_all`, which visits every type of device, also those that this process has not used."""
    _seed_cpu(seed)
    for type, generator in generators_in_use().items():
        if type != "torch":
            generator.manual_seed(seed)


def _seed_cpu(seed: int) -> None:
    # Not torch.manual_seed: it would visit every device.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def rng_state(*, devices: bool = True) -> dict[str, Any]:
    """Returns the state of every global generator, as plain data and arrays.

    Of an accelerator it is the state of the current device, and only if the accelerator is in use: a process
    trains on one device, which its worker or `Trainer.fit` has made the current one, and a run may continue
    on a machine with more or fewer devices. ``devices=False``: the CPU generators only.
    """
    in_use = generators_in_use() if devices else {}
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": [],  # these two keys are in every checkpoint, others only where the accelerator is in use
        "mps": [],
        **{type: [one.get_state()] for type, one in in_use.items() if type != "torch"},
        "numpy": {
            "name": name,
            "keys": np.asarray(keys),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "python": {"version": version, "numbers": np.array(numbers, dtype=np.uint32), "gauss": gauss},
    }


def generators_in_use() -> dict[str, torch.Generator]:
    """Returns torch's default generator, ``torch``, and that of each accelerator in use, by its type."""
    own = {one.type: one.generator() for one in ACCELERATORS.values() if one.is_initialized()}
    return {"torch": torch.default_generator, **{key: one for key, one in own.items() if one is not None}}


def as_rng_state(states: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Returns the states of `generators_in_use` as `rng_state` returns them."""
    return {key: state if key == "torch" else [state] for key, state in states.items()}


def set_rng_state(state: dict[str, Any]) -> list[str]:
    """Restores the state of every global generator from the result of `rng_state`.

    Returns:
        One line for each device generator that could not be restored, with the reason. CPU generators always
        can.
    """
    torch.set_rng_state(state["torch"])
    reasons = [
        reason for one in ACCELERATORS.values() for reason in _set_device_state(one, state.get(one.type, []))
    ]
    legacy = state["numpy"]
    np.random.set_state(
        (legacy["name"], legacy["keys"], legacy["position"], legacy["has_gauss"], legacy["cached"])
    )
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    return reasons


def _set_device_state(accelerator: Accelerator, states: list[Any]) -> list[str]:
    if not states:
        return []
    failure = f"the state of the {accelerator.label} generator could not be restored"
    if not accelerator.is_initialized():
        return [f"{failure}: {accelerator.label} is not in use"]
    if len(states) != 1:
        return [f"{failure}: it was saved for {len(states)} devices"]
    try:
        generator = accelerator.generator()
        assert generator is not None
        generator.set_state(states[0])
    except RuntimeError as error:  # another version of torch may have another size of the state
        return [f"{failure}: {str(error).partition(chr(10))[0]}"]
    return []


@contextmanager
def isolated(seed: int | None = None, *, devices: bool = True) -> Iterator[None]:
    """Restores all random generators in use after the context, those of all devices included. ``seed``, if
    given, seeds them inside it.

    Costs about 0.1 ms: for a batch or a validation, not for a sample. With ``devices=False`` only the CPU
    generators are restored, which is enough for fetching data.
    """
    in_use = [one for one in ACCELERATORS.values() if devices and one.is_initialized()]
    generators = [generator for one in in_use for generator in one.generators()]
    # As the libraries have them: `rng_state` takes three times as long.
    state = torch.get_rng_state(), np.random.get_state(legacy=True), random.getstate()
    states = [generator.get_state() for generator in generators]
    try:
        if seed is not None:
            # Not seed_all: torch would keep a call, with its stack, for each type of device not yet in use.
            _seed_cpu(seed)
            for generator in generators:
                generator.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(state[0])
        np.random.set_state(state[1])
        random.setstate(state[2])
        for generator, before in zip(generators, states, strict=True):
            generator.set_state(before)
