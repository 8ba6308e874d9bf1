from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.messages import Messages
from tests.worker.causes.scenes import known, of, texts, unknown

without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="this torch was built with CUDA")


@without_cuda
def test_a_torch_without_cuda_for_real() -> None:
    for ask in (lambda: torch.ones(1).cuda(), lambda: nn.Linear(2, 2).to("cuda")):
        cause = known(of(ask))
        assert f"torch {torch.__version__} " in cause.description and "CUDA" in cause.description
        assert "self.device" in cause.fix and '"cuda"' in cause.fix and "CUDA" in cause.fix


@pytest.mark.parametrize(
    "text",
    [
        "No CUDA GPUs are available",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed "
        "a driver "
        "from http://www.nvidia.com/Download/index.aspx",
    ],
)
@pytest.mark.parametrize(("visible", "says"), [("", "CUDA_VISIBLE_DEVICES"), (None, "nvidia-smi")])
def test_a_gpu_that_is_hidden_or_not_there(
    text: str, visible: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert says in known(RuntimeError(text)).description


@pytest.mark.parametrize(("found", "serves"), [("12080", "12.8"), ("11040", "11.4"), ("9000", "9.0")])
def test_a_driver_that_is_too_old(found: str, serves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        f"The NVIDIA driver on your system is too old (found version {found}). Please update your GPU "
        f"driver by "
        "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
        "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled "
        "with your "
        "version of the CUDA driver."
    )
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    cause = known(RuntimeError(text))
    assert (
        f"CUDA {serves}, torch {torch.__version__} " in cause.description and "CUDA 13.0" in cause.description
    )
    assert f"CUDA {serves} " in cause.fix


def test_a_gpu_that_no_code_was_built_for() -> None:
    text = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be"
    cause = known(torch.AcceleratorError(text))
    assert f"torch {torch.__version__}" in cause.description and "TORCH_CUDA_ARCH_LIST" in cause.fix


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            "(when checking argument for argument mat1 in method wrapper_CUDA_addmm)",
            "cuda:0 and cpu",
        ),
        (
            "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
            "GPU and CPU",
        ),
        (
            "Expected all tensors to be on the same device. addmm: expected 'mat1' to be a CPU tensor",
            "devices",
        ),
    ],
)
def test_two_devices(text: str, says: str, messages: Messages) -> None:
    cause = known(RuntimeError(text))
    assert says in cause.description and "Runner.to_device" in cause.fix and "register_buffer" in cause.fix
    messages.check(cause.description)


def test_two_devices_for_real() -> None:
    assert "cpu and meta" in known(of(lambda: nn.Linear(4, 2)(torch.ones(3, 4, device="meta")))).description


def test_asserts_ordinals_and_forks(messages: Messages) -> None:
    for text, fact in (
        ("CUDA error: device-side assert triggered\nCUDA kernel errors might", "CUDA_LAUNCH_BLOCKING=1"),
        ("CUDA error: invalid device ordinal\nCUDA kernel errors might", "self.device"),
        (
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use",
            "data.num_workers: 0",
        ),
    ):
        cause = known(RuntimeError(text))
        assert fact in cause.fix
        messages.check(texts(cause))


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("CUDA"),
        ValueError("No CUDA GPUs are available"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("Input type (torch.FloatTensor) and weight type (torch.HalfTensor) should be the same"),
        RuntimeError("The NVIDIA driver on your system is fine"),
    ],
)
def test_what_only_sounds_like_it(error: Exception) -> None:
    assert unknown(error)
