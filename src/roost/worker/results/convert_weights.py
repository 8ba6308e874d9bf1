"""The process of ``roost convert --weights``: reads a file of weights and writes a safetensors file.

The request comes as JSON on stdin, the answer is the last line of stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roost.base import durable, safetensors_format, state_tree
from roost.base.errors import CheckpointError, Refused, RoostError
from roost.train.weights import weight_files


def convert(request: Mapping[str, Any]) -> dict[str, Any]:
    """Carries out a request of `roost.operations.converting.weights_file`, and returns what was written.

    Raises:
        RoostError: See there.
        OSError: A file cannot be read or written.
    """
    path, entry = Path(request["file"]), request["entry"]
    try:
        source = weight_files.read(path, entry=entry)
        weights, description = source.weights, source.description
    except Refused:
        if not request["trust"]:
            raise
        weights, description = _read_trusted(path, entry)
    tensors = {
        request["prefix"] + name.removeprefix(request["strip"]): value.detach()
        for name, value in weights.items()
        if isinstance(value, Tensor)
    }
    leaves = {name: state_tree.tensor_leaf(tensor) for name, tensor in tensors.items()}
    if odd := [name for name, leaf in leaves.items() if not safetensors_format.supports_dtype(leaf.dtype)]:
        raise CheckpointError(f"a safetensors file cannot hold {leaves[odd[0]].dtype}, the type of {odd[0]}")
    chunks = safetensors_format.serialize(leaves, metadata={"format": "pt"})
    durable.write_new(Path(request["output"]), chunks)
    return {
        "description": description,
        "tensors": len(tensors),
        "numbers": sum(tensor.numel() for tensor in tensors.values()),
        "left_out": [name for name, value in weights.items() if not isinstance(value, Tensor)],
    }


def _read_trusted(path: Path, entry: str | None) -> tuple[Mapping[str, Any], str]:
    """Returns the weights in a file and their origin; runs the code that the file names."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        raise CheckpointError(
            f"its objects cannot be restored: {type(error).__name__}: {error}",
            fix="install the packages that it was saved with, or put their folder on PYTHONPATH",
        ) from error
    if isinstance(content, torch.nn.Module):
        return content.state_dict(), "a model that torch.save pickled"
    weights, where, _ = weight_files.find_state_dict(content, entry)
    return weights, f"a file of torch.save with pickled objects{where}"


def main() -> None:
    """Reads the request, converts, and prints the answer."""
    request = json.loads(sys.stdin.read())
    try:
        answer = convert(request)
    except RoostError as error:
        answer = {"error": type(error).__name__, "message": error.message, "fix": error.fix}
    except OSError as error:
        answer = {"error": "OSError", "message": str(error), "fix": None}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
