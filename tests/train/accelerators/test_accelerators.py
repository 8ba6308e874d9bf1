"""Which accelerator answers for a device, and by which call of torch it does."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from roost.devices import device_types
from roost.package.resume import environment
from roost.train.accelerators import registry
from roost.train.accelerators.accelerator import Accelerator, float32_precision
from roost.train.accelerators.cpu import Cpu
from roost.train.accelerators.cuda import Cuda, why_no_gpu
from roost.train.accelerators.mps import Mps
from roost.train.accelerators.registry import accelerator_of
from roost.train.accelerators.xpu import Xpu

FIRST = torch.device("cuda", 0)


class Calls(list[tuple[Any, ...]]):
    """Records calls in place of functions."""

    def stub(self, name: str, result: Any = None) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            self.append((name, *arguments, *named.items()))
            return result

        return called


# --- the registry -----------------------------------------------------------------------------------------


def test_each_type_has_its_accelerator() -> None:
    kinds = {"cpu": Cpu, "cuda": Cuda, "mps": Mps, "xpu": Xpu}
    assert {name: type(one) for name, one in registry.ACCELERATORS.items()} == kinds
    assert all(one.type == name for name, one in registry.ACCELERATORS.items())
    for device in ("cuda", "cuda:1", torch.device("cuda", 3)):
        assert accelerator_of(device) is registry.ACCELERATORS["cuda"]


def test_what_may_be_requested_by_name_has_an_accelerator() -> None:
    """The command line must not import torch, so it has a list of its own."""
    assert list(device_types.REQUESTABLE) == [device_types.AUTO, *registry.ACCELERATORS]
    assert registry.leased_accelerator().type == device_types.CARDS
    for requested, may in ((None, True), ("auto", True), ("cuda:1", True), ("cpu", False), ("mps", False)):
        assert device_types.may_use_cards(requested) == may


@pytest.mark.parametrize(
    ("available", "chosen"),
    [((), "cpu"), (("xpu",), "cpu"), (("mps", "xpu"), "mps"), (("cuda", "mps"), "cuda")],
)
def test_auto_takes_cuda_then_mps_and_no_other(
    available: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cuda", "mps", "xpu"):
        monkeypatch.setattr(registry.ACCELERATORS[name], "is_available", lambda name=name: name in available)
    assert registry.automatic_type() == chosen


def test_the_cpu_is_never_asked_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = accelerator_of("cpu")
    monkeypatch.setattr(cpu, "_module", lambda: pytest.fail("asked"))
    cpu.set_current(torch.device("cpu"))
    cpu.synchronize()
    cpu.empty_cache()
    assert not (cpu.is_initialized() or cpu.copies_concurrently or cpu.times_events or cpu.reports_memory)
    assert cpu.why_unusable(torch.device("cpu")) is None and cpu.name_for_rank(3) == "cpu"
    assert cpu.collective_backend == "gloo" and cpu.has_fused("torch.optim.Adagrad")


# --- CUDA -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "given", "function", "arguments"),
    [
        ("is_available", (), "is_available", ()),
        ("is_initialized", (), "is_initialized", ()),
        ("count", (), "device_count", ()),
        ("current_index", (), "current_device", ()),
        ("set_current", (FIRST,), "set_device", (FIRST,)),
        ("model", ("cuda:1",), "get_device_name", ("cuda:1",)),
        ("use_device", (FIRST,), "device", (FIRST,)),
        ("synchronize", (), "synchronize", ()),
        ("current_stream", (FIRST,), "current_stream", (FIRST,)),
        ("new_stream", (FIRST,), "Stream", (FIRST,)),
        ("use_stream", (7,), "stream", (7,)),
        ("timed_event", (), "Event", (("enable_timing", True),)),
        ("reserved_bytes", (1,), "memory_reserved", (1,)),
        ("peak_reserved_bytes", (1,), "max_memory_reserved", (1,)),
        ("peak_allocated_bytes", (1,), "max_memory_allocated", (1,)),
        ("reset_peaks", (1,), "reset_peak_memory_stats", (1,)),
        ("free_and_total_bytes", (1,), "mem_get_info", (1,)),
        ("limit_memory", (0.5, 1), "set_per_process_memory_fraction", (0.5, 1)),
        ("empty_cache", (), "empty_cache", ()),
    ],
)
def test_a_question_about_cuda_is_one_call(
    method: str, given: tuple[Any, ...], function: str, arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other call beside it: none that waits, and none that would create a context on a device."""
    calls = Calls()
    names = [name for name in dir(torch.cuda) if callable(getattr(torch.cuda, name)) and name[0] != "_"]
    for name in names:
        monkeypatch.setattr(torch.cuda, name, calls.stub(name, 1))
    assert getattr(accelerator_of("cuda"), method)(*given) in (1, None)
    assert calls == [(function, *arguments)]


def test_cuda_pins_and_fuses(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    monkeypatch.setattr(torch, "empty", calls.stub("empty"))
    cuda = accelerator_of("cuda")
    for given, taken in ((64, 64), (65, 128), (2**26 + 1, 2**27)):  # what torch's allocator takes anyway
        cuda.pinned_memory(given)
        assert calls.pop() == ("empty", taken, ("dtype", torch.uint8), ("pin_memory", True))
    assert cuda.has_fused("torch.optim.AdamW") and not cuda.has_fused("torch.optim.Adagrad")
    assert (cuda.collective_backend, cuda.name_for_rank(2)) == ("nccl", "cuda:2")


def test_the_dropout_of_cudnn_is_named_inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the layers of an RNN, and nowhere else: cuDNN keeps a generator of its own for it."""
    net = nn.ModuleDict(
        {
            "encoder": nn.LSTM(2, 2, num_layers=2, dropout=0.1),
            "decoder": nn.GRU(2, 2, num_layers=3, dropout=0.5),
            "plain": nn.LSTM(2, 2, num_layers=2),
            "single": nn.ModuleList([nn.GRU(2, 2), nn.Dropout(0.3), nn.GRU(2, 2)]),
        }
    )
    reasons = accelerator_of("cuda").inexact_reasons(net)
    assert [next(name for name in net if name in reason) for reason in reasons] == ["encoder", "decoder"]
    assert all("cuDNN" in reason for reason in reasons)
    (alone,) = accelerator_of("cuda").inexact_reasons(net["encoder"])
    assert "LSTM" in alone
    assert accelerator_of("cpu").inexact_reasons(net) == []
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)  # torch's own kernels draw from its generator
    assert accelerator_of("cuda").inexact_reasons(net) == []


def test_a_model_on_several_devices_is_named_inexact() -> None:
    """Of their generators checkpoints hold one."""

    def spread(*devices: str) -> Any:
        parameters = [SimpleNamespace(device=torch.device(one)) for one in devices]
        return SimpleNamespace(parameters=lambda: parameters, named_modules=list)

    cuda = accelerator_of("cuda")
    assert cuda.inexact_reasons(spread("cuda:0", "cpu", "cuda:0")) == []
    (reason,) = cuda.inexact_reasons(spread("cuda:0", "cuda:1"))
    assert "several devices" in reason


def test_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert f"torch {torch.__version__} " in why_no_gpu() and "CUDA_VISIBLE_DEVICES" not in why_no_gpu()
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in why_no_gpu() and "''" in why_no_gpu()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "nvidia-smi" in why_no_gpu()


def test_rocm_is_a_build_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.2.41133")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    assert "built without" not in why_no_gpu() and "rocm-smi" in why_no_gpu()
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "7")
    assert "HIP_VISIBLE_DEVICES is '7'" in why_no_gpu()


def test_what_changes_the_bits_of_cuda_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fact under a name that is compared when a run continues."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    cuda = accelerator_of("cuda")
    flags, versions = cuda.numeric_flags(), cuda.versions()
    assert {*flags, *versions} <= environment.STACK_LABELS.keys()
    assert (flags["tf32_override"], flags["nccl_algorithm"], flags["nccl_protocol"]) == ("0", "Ring", None)
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = not before
    try:
        assert cuda.numeric_flags()["allow_bf16_reduced_precision_reduction"] is not before
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before
    if torch.version.cuda is None:
        assert versions["cublas"] is None


def test_a_precision_is_read_by_its_new_name_or_its_old_one() -> None:
    class Mixed:
        """To read the old name once the new one was set is an error."""

        fp32_precision = "tf32"

        @property
        def allow_tf32(self) -> bool:
            raise RuntimeError

    class Old:
        allow_tf32 = False

    assert [float32_precision(backend) for backend in (Mixed(), Old(), None)] == ["tf32", "ieee", None]


# --- a type without a file, and those that were never run -------------------------------------------------

GENERAL = {
    "count": ("device_count", "device_count"),
    "current_index": ("current_device_index", "current_device"),
    "synchronize": ("synchronize", "synchronize"),
    "empty_cache": ("empty_cache", "empty_cache"),
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """A module ``torch.hpu``, as the makers of a device install one."""
    calls = Calls()
    stubs = {own: calls.stub(f"hpu.{own}", 1) for _, own in GENERAL.values()}
    found = SimpleNamespace(**stubs, is_available=lambda: True, is_initialized=lambda: True)
    monkeypatch.setattr(torch, "hpu", found, raising=False)
    torch.get_device_module.cache_clear()
    yield calls
    torch.get_device_module.cache_clear()


@pytest.mark.parametrize("method", GENERAL)
def test_the_general_functions_of_torch_come_first(
    method: str, module: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    general, own = GENERAL[method]
    hpu = Accelerator("hpu")
    getattr(hpu, method)()
    assert module == [(f"hpu.{own}",)], "another type, or none, is the accelerator of the process"
    module.clear()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("hpu"))
    monkeypatch.setattr(torch.accelerator, general, module.stub(general, 1), raising=False)
    getattr(hpu, method)()
    assert module == [(general,)]
    module.clear()
    monkeypatch.delattr(torch.accelerator, general)
    getattr(hpu, method)()
    assert module == [(f"hpu.{own}",)], "as before torch had it"


def test_a_type_without_a_file_promises_nothing(module: Calls) -> None:
    hpu = accelerator_of("hpu:1")
    assert type(hpu) is Accelerator and hpu.type == "hpu" and hpu.is_available() and hpu.is_initialized()
    assert not (hpu.copies_concurrently or hpu.times_events or hpu.reports_memory or hpu.has_fused("x.Adam"))
    assert hpu.why_unusable(torch.device("hpu:0")) is None
    assert "1" in str(hpu.why_unusable(torch.device("hpu:1"))), "there is one"
    assert hpu.model("hpu") is None and hpu.generator() is None and hpu.profiler_activity() is None


def test_a_type_without_a_module_is_left_to_torch() -> None:
    """A checkpoint can be read to the meta device: shapes without values."""
    meta = accelerator_of("meta")
    assert not meta.is_available() and not meta.is_initialized()
    assert meta.why_unusable(torch.device("meta")) is None
    meta.empty_cache()


@pytest.mark.skipif(torch.xpu.is_available(), reason="there is an Intel GPU")
def test_intel_s_gpus_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    xpu = accelerator_of("xpu")
    assert not xpu.is_initialized() and "xpu" in str(xpu.why_unusable(torch.device("xpu")))
    calls = Calls()
    for name, result in {"is_available": True, "max_memory_reserved": 5, "mem_get_info": (1, 2)}.items():
        monkeypatch.setattr(torch.xpu, name, calls.stub(name, result))
    assert xpu.peak_reserved_bytes(0) == 5 and xpu.free_and_total_bytes(0) == (1, 2)
    assert calls == [("max_memory_reserved", 0), ("mem_get_info", 0)]
    assert not xpu.copies_concurrently and not xpu.times_events, "set them once it was run"


def test_apple_s_gpus_have_no_float64_and_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    mps = accelerator_of("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert mps.is_initialized() and not mps.has_float64 and mps.name_for_rank(1) == "mps"
    assert mps.why_unusable(torch.device("mps")) is None
    assert mps.why_unusable(torch.device("mps:1")) is not None
