"""Causes with deterministic algorithms: operations that have none, and a missing variable of cuBLAS."""

from __future__ import annotations

import re
import sys

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, rule_by_text

_REFUSED = re.compile(r"(\w+)((?: [\w ]+)?) does not have a deterministic implementation, but you set ")
_PARTS = re.compile(r"_(?:backward|forward|out|cuda|cpu|gpu|kernel|template|with_indices)(?:_|$)")
"""Suffixes by which torch distinguishes the kernels of one operation."""
_PUBLIC_NAMES = (
    (re.compile(r"max_unpooling2d"), "nn.MaxUnpool1d or nn.MaxUnpool2d"),
    (re.compile(r"max_unpooling3d"), "nn.MaxUnpool3d"),
    (re.compile(r"upsample_(\w+?)\dd"), 'F.interpolate(mode="{0}")'),
    (re.compile(r"grid_sampler_\dd"), "F.grid_sample"),
    (re.compile(r"nll_loss2d"), "nn.CrossEntropyLoss or nn.NLLLoss of pictures"),
    (re.compile(r"quantized_resize"), "resize_() of a quantized tensor"),
)


def no_deterministic_algorithm(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """Only deterministic algorithms are allowed, and the operation has none."""
    match = _REFUSED.match(record.text) if record.is_a("RuntimeError") else None
    if match is None:
        return None
    kernel, more = match.groups()
    device = " on a GPU" if re.search("cuda|gpu", kernel + more, re.IGNORECASE) else ""
    if context.settings and context.settings.get("determinism") != "strict":
        asks, end = (
            "the project's own code",
            "remove torch.use_deterministic_algorithms(True) from the project",
        )
    else:
        key = context.key("determinism")
        asks = f"{key}: strict"
        end = f"set {key}: seeded, which allows it (the run may then not repeat bit for bit)"
    return Cause(
        f"{operation_name(kernel)} has no deterministic algorithm{device}, and {asks} allows nothing else",
        f"use another operation, or {end}",
    )


def operation_name(kernel: str) -> str:
    """Returns the public name of a kernel's operation if it can be derived: ``the gradient of nn.AvgPool3d``
    for ``avg_pool3d_backward_cuda``; else the kernel's name."""
    found = _public_name(_PARTS.split(kernel.removeprefix("_"))[0])
    if found is None:
        return kernel
    return f"the gradient of {found}" if "_backward" in kernel else found


def _public_name(stem: str) -> str | None:
    for pattern, words in _PUBLIC_NAMES:
        if match := pattern.fullmatch(stem):
            return words.format(*match.groups())
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    module = "".join(part.capitalize() for part in stem.split("_"))
    places = (("nn", torch.nn, module), ("F", torch.nn.functional, stem), ("torch", torch, stem))
    for shown, namespace, name in (*places, ("Tensor", torch.Tensor, stem)):
        if hasattr(namespace, name):
            return f"{shown}.{name}"
    return None


CAUSES: tuple[CauseRule, ...] = (
    no_deterministic_algorithm,
    rule_by_text(
        "RuntimeError",
        r"Deterministic behavior was enabled with [^\n]*because it uses CuBLAS",
        "the project turns on deterministic algorithms, and the variable that cuBLAS needs is not set",
        "set determinism: strict, which sets both before CUDA starts, and remove "
        "torch.use_deterministic_algorithms(True) from the project",
    ),
)
