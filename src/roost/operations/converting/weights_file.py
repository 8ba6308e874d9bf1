"""Weights of another trainer as a safetensors file, written by a process that has torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import CheckpointError, ConfigError, NotFound, Refused, RoostError, UsageError

_MODULE = "roost.worker.results.convert_weights"
_KINDS = {kind.__name__: kind for kind in (CheckpointError, ConfigError, NotFound, Refused, UsageError)}


@dataclass(frozen=True)
class ConvertedWeights:
    """A file of weights that was written."""

    description: str
    """The origin as text: ``a file of torch.save, its entry 'model'``."""
    tensors: int
    numbers: int
    """The number of elements."""
    left_out: list[str]
    """Entries of the file that are no tensors."""


def convert_weights(
    file: Path, output: Path, *, strip: str, prefix: str, entry: str | None, trust: bool
) -> ConvertedWeights:
    """Reads a file of weights and writes its tensors.

    Args:
        file: A file of torch.save (.pth, .mdl, .pkl) or a safetensors file.
        output: The safetensors file.
        strip: A prefix that is removed from the names that begin with it.
        prefix: A prefix that is put before the names.
        entry: The entry of the file that has the weights; None: it is found.
        trust: Whether pickled objects in the file are loaded, which may run any code.

    Raises:
        NotFound: There is no such file.
        Refused: Loading the file would run code that is in it, and it is not trusted.
        CheckpointError: The file is damaged, or holds no tensors by name.
        RoostError: The process failed otherwise.
    """
    request = {
        "file": str(file.absolute()),
        "output": str(output),
        "strip": strip,
        "prefix": prefix,
        "entry": entry,
        "trust": trust,
    }
    command = [sys.executable, "-P", "-m", _MODULE]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RoostError(f"the weights could not be converted: {last}") from None
    if "error" in answer:
        kind = _KINDS.get(answer["error"], RoostError)
        fix = answer["fix"]
        if kind is Refused and not trust:
            fix = "add --trust if you trust the file's origin"
        raise kind(answer["message"], setting="--weights", received=str(file), fix=fix)
    return ConvertedWeights(**answer)
