"""What goes through an accelerator, on one that runs its work as late as it may."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from roost.base import state_tree
from roost.project.contract import move_to_device
from roost.train.accelerators import registry
from roost.train.checkpointing import staging as staging_module
from roost.train.checkpointing.staging import Staging
from roost.train.model import peak_gpu_memory
from roost.train.step import seeding
from roost.train.step.timing import BACKWARD, DATA, FORWARD, Timing
from tests.train.parts import bits
from tests.train.simulated_accelerator import DEVICE, SimulatedAccelerator, on_device


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimulatedAccelerator:
    made = SimulatedAccelerator()
    made.put_in_place(monkeypatch)
    monkeypatch.setattr(peak_gpu_memory, "_earlier_peaks", {})
    return made


# --- staging ----------------------------------------------------------------------------------------------


def values() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {"weight": torch.randn(5, 3), "moment": torch.randn(5, 3), "steps": torch.tensor(7)}


def on_both(found: dict[str, Tensor]) -> dict[str, Any]:
    """The steps are counted on the CPU, as optimizers do."""
    return {name: one if name == "steps" else on_device(one) for name, one in found.items()}


def test_a_copy_beside_the_computation_has_the_bytes_from_before_the_next_step(
    device: SimulatedAccelerator,
) -> None:
    found = values()
    expected = bits(values())
    state = on_both(found)
    staging = Staging()
    staging.begin(defer=[state["weight"], state["steps"]])
    leaves = {name: staging.leaf(one) for name, one in state.items()}
    staging.start_gpu_copies()
    staging.copy_deferred()
    assert not staging.has_changed()
    device.launch(lambda: None, ms=3.0)  # forward and backward read the weights only
    staging.order_after_copies()
    device.launch(lambda: found["weight"].zero_())
    device.launch(lambda: found["moment"].zero_())
    staging.wait()
    device.synchronize()
    assert not found["weight"].any(), "the step was taken"
    read = {name: torch.frombuffer(bytearray(leaf.data), dtype=torch.uint8) for name, leaf in leaves.items()}
    shaped = {name: one.view(found[name].dtype).view(found[name].shape) for name, one in read.items()}
    assert bits(shaped) == expected
    assert device.calls == [
        f"pin {1 << 20} bytes",
        "copy in main",  # the moment, at once: ordered before the later kernels of this stream
        "side 1 waits for main",
        "copy in side 1",
        "record in side 1",
        "record in main",
        "kernel in main",
        "main waits for an event of side 1",
        "main waits for an event of main",
        "kernel in main",
        "kernel in main",
        f"current device {DEVICE} for a while",  # mostly a new thread waits, whose current device is 0
        "the host waits for an event of side 1",
        f"current device {DEVICE} for a while",
        "the host waits for an event of main",
        "the host waits for everything",
    ]


def test_without_that_order_the_copy_would_be_torn(device: SimulatedAccelerator) -> None:
    """The test above would pass for nothing on a device that runs everything at once."""
    found = values()
    staging, weight = Staging(), on_device(found["weight"])
    staging.begin(defer=[weight])
    leaf = staging.leaf(weight)
    staging.start_gpu_copies()
    device.launch(lambda: found["weight"].zero_())
    staging.wait()
    assert bytes(leaf.data) == bytes(found["weight"].nbytes)


def test_the_memory_of_a_copy_is_used_again(device: SimulatedAccelerator) -> None:
    staging, found = Staging(), values()
    for _ in range(3):
        staging.begin()
        leaves = [staging.leaf(on_device(one)) for one in (found["weight"], found["moment"])]
        staging.start_gpu_copies()
        staging.wait()
        assert [bytes(leaf.data) for leaf in leaves] == [
            state_tree.tensor_leaf(found[name]).data.tobytes() for name in ("weight", "moment")
        ]
    assert [call for call in device.calls if call.startswith("pin")] == [f"pin {1 << 20} bytes"]


def test_little_memory_of_the_host_is_not_page_locked(
    device: SimulatedAccelerator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(staging_module, "available_bytes", lambda: 2 << 20)
    found, staging = values(), Staging()
    for _ in range(2):
        staging.begin()
        leaf = staging.leaf(on_device(found["weight"]))
        large = staging.leaf(on_device(torch.ones(1 << 19)))
        staging.start_gpu_copies()
        staging.wait()
        assert bytes(leaf.data) == found["weight"].numpy().tobytes()
        assert bytes(large.data) == torch.ones(1 << 19).numpy().tobytes()
    assert not [call for call in device.calls if call.startswith("pin")]
    assert capsys.readouterr().out.count("\n") == 1, "said once"


def test_a_type_that_does_not_copy_concurrently_waits(
    device: SimulatedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "copies_concurrently", False)
    staging, weight = Staging(), on_device(values()["weight"])
    staging.begin(defer=[weight])
    with pytest.raises(AssertionError, match="waits"):
        staging.leaf(weight)


def test_a_batch_goes_to_the_device_without_a_wait(
    device: SimulatedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(Tensor, "to", lambda self, device, non_blocking: asked.append(non_blocking))
    move_to_device([torch.ones(1)], DEVICE)
    monkeypatch.setattr(device, "copies_concurrently", False)
    move_to_device([torch.ones(1)], DEVICE)
    assert asked == [True, False]


# --- time and memory --------------------------------------------------------------------------------------


def take_step(timing: Timing, device: SimulatedAccelerator) -> None:
    assert timing.device is not None
    timing.device.begin()
    for part, ms in ((DATA, 1.0), (FORWARD, 2.0), (BACKWARD, 4.0)):
        device.launch(lambda: None, ms)
        timing.device.record(part)


def test_the_parts_of_a_step_take_the_time_of_the_device(device: SimulatedAccelerator) -> None:
    timing = Timing(DEVICE)
    timing.begin(0, 0, 100.0)
    for _ in range(2):
        take_step(timing, device)
    assert not any("the host waits" in call for call in device.calls), "before a row nothing waits"
    row = timing.row(2, 20, 101.0)
    assert (row["perf/data_ms"], row["perf/forward_ms"], row["perf/backward_ms"]) == (1.0, 2.0, 4.0)
    one_step = ["record in main", *["kernel in main", "record in main"] * 3]
    assert device.calls == [*one_step * 2, "the host waits for an event of main", "reset the peaks"]


def test_a_device_whose_events_measure_nothing_has_the_times_of_the_host(
    device: SimulatedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "times_events", False)
    timing = Timing(DEVICE)
    assert timing.device is None
    timing.begin(0, 0, 100.0)
    timing.spent[FORWARD] += 0.5
    assert timing.row(1, 10, 101.0)["perf/forward_ms"] == 500.0


def test_a_row_has_the_peak_since_the_row_before_and_the_process_keeps_the_most(
    device: SimulatedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = Timing(DEVICE)
    timing.begin(0, 0, 100.0)
    mb = 2**20
    device.peak, device.peak_allocated = 300 * mb, 200 * mb
    assert timing.row(1, 10, 101.0)["perf/gpu_mb"] == 200.0
    device.peak, device.peak_allocated = 100 * mb, 50 * mb
    assert timing.row(2, 20, 103.0)["perf/gpu_mb"] == 50.0
    assert timing.session_span(2, 20, 103.5).gpu_mb == 200.0
    assert peak_gpu_memory.process_peak(DEVICE) == (300.0, 200.0)
    monkeypatch.setattr(device, "reports_memory", False)
    timing = Timing(DEVICE)
    timing.begin(0, 0, 100.0)
    assert "perf/gpu_mb" not in timing.row(1, 10, 101.0)


# --- random numbers ---------------------------------------------------------------------------------------


def test_the_generator_of_the_device_is_saved_and_restored(device: SimulatedAccelerator) -> None:
    state = seeding.rng_state()
    assert list(state)[:4] == ["torch", "cuda", "mps", DEVICE.type], "a key of its own beside the old ones"
    expected = torch.rand(3, generator=device.random)
    torch.rand(2)
    assert seeding.set_rng_state(state_tree.unpack(*state_tree.pack(state))) == []
    assert torch.equal(torch.rand(3, generator=device.random), expected)


def test_a_validation_leaves_no_trace_in_the_generators_of_all_devices(
    device: SimulatedAccelerator,
) -> None:
    """Seeding reaches each device, so each must be restored: the model may use another than the current."""
    generators = device.generators()
    before = bits([generator.get_state() for generator in generators])
    expected = torch.rand(3, generator=torch.Generator().manual_seed(7))
    with seeding.isolated(7):
        for generator in generators:
            assert torch.equal(torch.rand(3, generator=generator), expected)
    assert bits([generator.get_state() for generator in generators]) == before
    device.calls.clear()
    with seeding.isolated(7, devices=False):
        pass
    assert device.calls == [], "to fetch data asks no device"


def test_a_device_that_is_not_in_use_is_not_asked(device: SimulatedAccelerator) -> None:
    state = seeding.rng_state()
    device.is_used = False
    device.calls.clear()
    assert DEVICE.type not in seeding.rng_state()
    assert list(seeding.generators_in_use()) == ["torch"]
    (reason,) = seeding.set_rng_state(state)
    assert "SIM" in reason and device.calls == []


def test_the_generators_of_a_failed_step_are_those_at_its_start(device: SimulatedAccelerator) -> None:
    watched = seeding.generators_in_use()
    states = {key: generator.get_state() for key, generator in watched.items()}
    expected = torch.rand(3, generator=device.random)
    state = {**seeding.rng_state(devices=False), **seeding.as_rng_state(states)}
    assert seeding.set_rng_state(state) == []
    assert torch.equal(torch.rand(3, generator=device.random), expected)


def test_the_caches_of_all_are_emptied(device: SimulatedAccelerator) -> None:
    registry.empty_caches()
    assert device.calls == ["empty the cache"]
