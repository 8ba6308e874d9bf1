from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from roost.worker.causes.determinism_causes import operation_name
from tests.messages import Messages
from tests.project.projects import project
from tests.worker.causes.scenes import known, of, texts, unknown

REFUSED = (
    "{} does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, or "
    "you can use the 'warn_only=True' option, if that's acceptable for your application."
)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def unpool() -> object:
    return nn.MaxUnpool2d(2)(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.int64))


def put() -> object:
    return torch.zeros(4).put_(torch.tensor([0, 0]), torch.ones(2))


def test_operations_that_have_none_for_real(tmp_path: Path, deterministic: None, messages: Messages) -> None:
    strict = project(tmp_path, determinism="strict")
    cause = known(of(unpool), strict.path)
    assert cause.description.startswith("nn.MaxUnpool1d or nn.MaxUnpool2d ")
    assert "determinism: strict" in cause.description and "determinism: seeded" in cause.fix
    messages.check(texts(cause))
    assert known(of(put), strict.path).description.startswith("Tensor.put_ ")
    assert "determinism: strict" in known(of(put)).description, "no package to ask"


def test_a_project_that_asks_for_it_itself(tmp_path: Path, deterministic: None, messages: Messages) -> None:
    cause = known(of(put), project(tmp_path).path)
    assert "Tensor.put_ " in cause.description and "determinism: strict" not in cause.description
    assert "torch.use_deterministic_algorithms(True)" in cause.fix
    messages.check(texts(cause))


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("avg_pool3d_backward_cuda", "nn.AvgPool3d"),
        ("adaptive_avg_pool2d_backward_cuda", "nn.AdaptiveAvgPool2d"),
        ("max_pool3d_with_indices_backward_cuda", "nn.MaxPool3d"),
        ("fractional_max_pool2d_backward_cuda", "nn.FractionalMaxPool2d"),
        ("upsample_bilinear2d_backward_out_cuda", 'F.interpolate(mode="bilinear")'),
        ("reflection_pad1d_backward_out_cuda", "nn.ReflectionPad1d"),
        ("nll_loss2d_forward_out_cuda_template", "nn.CrossEntropyLoss or nn.NLLLoss"),
        ("ctc_loss_backward_gpu", "F.ctc_loss"),
        ("embedding_bag_backward_cuda_max", "nn.EmbeddingBag"),
        ("cumsum_cuda_kernel", "torch.cumsum"),
        ("_histc_cuda with floating point input", "torch.histc"),
        ("_bincount_cuda", "torch.bincount"),
        ("kthvalue CUDA", "torch.kthvalue"),
        ("median CUDA with indices output", "torch.median"),
        ("grid_sampler_2d_backward_cuda", "F.grid_sample"),
        ("roi_align_backward_kernel_cuda", "roi_align_backward_kernel_cuda"),
    ],
)
def test_kernels_of_a_gpu(name: str, named: str, messages: Messages) -> None:
    description = known(RuntimeError(REFUSED.format(name))).description
    assert re.search(rf"(^| ){re.escape(named)} .*GPU", description)
    assert ("gradient" in description) == ("backward" in name and name != named)
    if name in ("cumsum_cuda_kernel", "ctc_loss_backward_gpu"):
        messages.check(description)


def test_what_torch_does_not_know_by_name_is_named_as_it_is() -> None:
    assert operation_name("quantized_resize_cpu_").startswith("resize_() ")
    assert operation_name("my_own_kernel") == "my_own_kernel"


def test_the_variable_of_cublas_is_missing() -> None:
    text = (
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
        "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it "
        "uses CuBLAS and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set "
        "an environment variable before running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8"
    )
    cause = known(RuntimeError(text))
    assert "cuBLAS" in cause.description and "determinism: strict" in cause.fix


def test_something_else() -> None:
    assert unknown(ValueError(REFUSED.format("put_")))
    assert unknown(RuntimeError("my sampler does not have a deterministic implementation"))
    assert unknown(RuntimeError("Deterministic behavior was enabled with a flag of mine"))
