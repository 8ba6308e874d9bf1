"""Operations that cannot give the same bits each time, where nothing else is allowed."""

from __future__ import annotations

import re
import sys

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext, rule_by_text

_REFUSED = re.compile(r"(\w+)((?: [\w ]+)?) does not have a deterministic implementation, but you set ")
_PARTS = re.compile(r"_(?:backward|forward|out|cuda|cpu|gpu|kernel|template|with_indices)(?:_|$)")
"""What torch adds to an operation's name to tell its kernels apart."""
_PUBLIC_NAMES = (
    (re.compile(r"max_unpooling2d"), "nn.MaxUnpool1d or nn.MaxUnpool2d"),
    (re.compile(r"max_unpooling3d"), "nn.MaxUnpool3d"),
    (re.compile(r"upsample_(\w+?)\dd"), 'F.interpolate(mode="{0}")'),
    (re.compile(r"grid_sampler_\dd"), "F.grid_sample"),
    (re.compile(r"nll_loss2d"), "nn.CrossEntropyLoss or nn.NLLLoss of pictures"),
    (re.compile(r"quantized_resize"), "resize_() of a quantized tensor"),
)


def no_deterministic_algorithm(raised: ExceptionRecord, scene: FailureContext) -> Cause | None:
    """Deterministic algorithms are asked for, and there is none."""
    match = _REFUSED.match(raised.text) if raised.is_a("RuntimeError") else None
    if match is None:
        return None
    kernel, more = match.groups()
    place = " on a GPU" if re.search("cuda|gpu", kernel + more, re.IGNORECASE) else ""
    if scene.settings and scene.settings.get("determinism") != "strict":
        asks, end = (
            "the project's own code",
            "take torch.use_deterministic_algorithms(True) out of the project",
        )
    else:
        asks = "determinism: strict"
        end = "set determinism: seeded, which allows it (the run may then not be repeated bit for bit)"
    return Cause(
        f"{operation_name(kernel)} has no deterministic algorithm{place}, and {asks} allows nothing else",
        f"put another operation in its place, or {end}",
    )


def operation_name(kernel: str) -> str:
    """What a person calls the operation of a kernel, as far as that can be told: ``the gradient of
    nn.AvgPool3d`` for ``avg_pool3d_backward_cuda``."""
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
    for shown, place, name in (*places, ("Tensor", torch.Tensor, stem)):
        if hasattr(place, name):
            return f"{shown}.{name}"
    return None


CAUSES: tuple[CauseRule, ...] = (
    no_deterministic_algorithm,
    rule_by_text(
        "RuntimeError",
        r"Deterministic behavior was enabled with [^\n]*because it uses CuBLAS",
        "the project asks for deterministic algorithms, and cuBLAS's variable for them is not set",
        "set determinism: strict, which sets both before CUDA starts, and take "
        "torch.use_deterministic_algorithms(True) out of the project",
    ),
)
