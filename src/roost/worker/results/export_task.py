"""The export task: writes the weights of one checkpoint, or the mean of several, into a plain file."""

# Not durable: torch writes into a durable file

from __future__ import annotations

import functools
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from roost.analysis import analysis_folder
from roost.base import durable, safetensors_format, state_tree
from roost.base.durable import NewFile
from roost.base.errors import NotFound, Refused, UsageError
from roost.package import sessions
from roost.package.checkpoints import checkpoint, selection
from roost.package.dlnest.original_checkpoint import known_step
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.package import PackageFolder
from roost.project.dlnest.run_state import PROJECT
from roost.worker.caller_watch import end_with_caller
from roost.worker.results import project_weights
from roost.worker.results import weight_mean as stored_weights
from roost.worker.results.weight_mean import WeightMean, Weights

_MAX_PREFIXES = 5
_PLAIN_TYPES = (bool, int, float, str, bytes, type(None))
"""Types that `torch.load(..., weights_only=True)` reads, apart from tensors and containers."""


def export(package: PackageFolder, folder: Path) -> str:
    """Exports weights as the request in ``folder`` describes, and returns "finished".

    Raises:
        NotFound: There is no such checkpoint or average, or no weight has the prefix.
        CheckpointError: A checkpoint cannot be read, or the checkpoints have no mean.
        Refused: The file exists already.
        UsageError: The file format cannot hold these weights.
        OSError: The file cannot be written.
    """
    request = sessions.load_json(folder / analysis_folder.REQUEST) or {}
    end_with_caller(request)
    notes: list[str] = []
    mean = WeightMean()
    read = functools.partial(stored_weights.read_weights, average=request["averaged"])
    selected = selection.from_json(request["chosen"])
    if isinstance(package, OriginalPackage):
        original, found_weights, said = project_weights.read_original(package, selected)
        mean.add(original, found_weights)
        notes += said
    else:
        for info, module in selection.load_each(package, selected, read, notes):
            mean.add(info, module["state"])
    weights, left_out = _without_prefix(mean.weights(), request["prefix"])
    output = Path(request["output"])
    is_safetensors = output.suffix == ".safetensors"
    weights, format_notes = _storable(weights, tensors_only=is_safetensors)
    notes += format_notes
    found = {
        "package": package.path.name,
        "checkpoints": [_checkpoint_entry(info) for info in mean.infos],
        "averaged": request["averaged"],
        "prefix": request["prefix"],
        "left_out": left_out,
        "tied": stored_weights.tied_names(weights),
        "tensors": sum(isinstance(value, Tensor) for value in weights.values()),
        "numbers": sum(one.numel() for one in _distinct_tensors(weights)),
        "notes": notes,
    }
    write = _write_safetensors if is_safetensors else _write_torch
    found |= write(folder / "weights", weights, found)
    if not request["overwrite"] and output.exists():
        raise _output_exists(output)
    durable.rename(folder / "weights", output)
    durable.write(folder / analysis_folder.RESULT, json.dumps(found).encode())
    return "finished"


def _output_exists(output: Path) -> Refused:
    return Refused(
        "the file exists already", setting="--weights", received=str(output), fix="add --overwrite"
    )


def _checkpoint_entry(info: checkpoint.Manifest) -> dict[str, Any]:
    part = PROJECT if project_weights.is_projects(info) else "model"
    digest, _ = checkpoint.tensor_digest(info, part)
    return {"id": info.id, "step": known_step(info), "epoch": info.epoch, "sha256": digest}


def _distinct_tensors(weights: Weights) -> list[Tensor]:
    return list({id(value): value for value in weights.values() if isinstance(value, Tensor)}.values())


def _without_prefix(weights: Weights, prefix: str | None) -> tuple[Weights, list[str]]:
    """Returns the weights whose names begin with ``prefix``, with the prefix removed, and the other names."""
    if prefix is None:
        return weights, []
    if not prefix.endswith(".") and any(name.startswith(f"{prefix}.") for name in weights):
        prefix += "."  # `--prefix net` means the module, and no name may begin with a dot
    found = {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}
    if not found:
        known = sorted({name.partition(".")[0] + "." for name in weights if "." in name})
        names = (
            f"the names begin with {', '.join(known[:_MAX_PREFIXES])}" if known else "the names have no dots"
        )
        fix = f"give another prefix: {names}" if known else f"leave out --prefix: {names}"
        raise NotFound("no weight's name begins with it", setting="--prefix", received=prefix, fix=fix)
    return found, [name for name in weights if not name.startswith(prefix)]


def _storable(weights: Weights, *, tensors_only: bool) -> tuple[Weights, list[str]]:
    """Returns the weights that the file format can hold, and a note about those it cannot."""
    good = {
        name: value
        for name, value in weights.items()
        if isinstance(value, Tensor) or (not tensors_only and _is_plain(value))
    }
    if not (odd := [name for name in weights if name not in good]):
        return good, []
    why = "a .safetensors file holds tensors only" if tensors_only else "torch.load would refuse it"
    return good, [f"extra state left out, because {why}: {', '.join(odd)}"]


def _is_plain(value: object) -> bool:
    if type(value) in (dict, OrderedDict) and isinstance(value, Mapping):
        return all(_is_plain(key) and _is_plain(one) for key, one in value.items())
    if type(value) in (list, tuple, set) and isinstance(value, list | tuple | set):
        return all(_is_plain(one) for one in value)
    return isinstance(value, Tensor) or type(value) in _PLAIN_TYPES


class _HashingFile:
    """A file object for torch.save: writes into a durable file and hashes the bytes."""

    def __init__(self, file: NewFile) -> None:
        self._file, self.digest, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview[Any]) -> int:
        written = self._file.write(data)
        self.digest.update(data)
        self.size += written
        return written

    def flush(self) -> None:
        return


def _write_torch(path: Path, weights: Weights, about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a dict for `torch.load`. ``about`` is not stored: every key of the dict would be a weight."""
    with NewFile(path) as file:
        sink = _HashingFile(file)
        torch.save(weights, cast("IO[bytes]", sink))
    return {"bytes": sink.size, "sha256": sink.digest.hexdigest()}


def _write_safetensors(path: Path, weights: Weights, about: Mapping[str, Any]) -> dict[str, Any]:
    leaves = {name: state_tree.tensor_leaf(tensor) for name, tensor in weights.items()}
    if odd := [name for name, leaf in leaves.items() if not safetensors_format.supports_dtype(leaf.dtype)]:
        raise UsageError(
            f"a .safetensors file cannot hold {leaves[odd[0]].dtype}, the type of {odd[0]}",
            setting="--weights",
            fix="name a file that ends in .pt",
        )
    metadata = {
        "format": "pt",  # expected by other readers
        "package": str(about["package"]),
        **{
            key: json.dumps(about[key]) for key in ("checkpoints", "averaged", "prefix", "tied") if about[key]
        },
    }
    digest = durable.write_new(path, safetensors_format.serialize(leaves, metadata=metadata))
    return {"bytes": digest.size, "sha256": digest.sha256}
