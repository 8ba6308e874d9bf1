"""Weights that were read, with their origin; and the reader of files that roost did not write: safetensors
and torch.save. Never runs code of a file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from roost.base import safe_read, safetensors_format, state_tree
from roost.base.errors import CheckpointError, NotFound, Refused, UsageError


@dataclass(frozen=True)
class WeightSource:
    """Weights on the CPU, by their names in the file or checkpoint, with their origin."""

    weights: Mapping[str, Any]
    """Tensors; the extra state of a module may be any plain data."""
    path: Path
    description: str
    """The origin as text: ``checkpoint 3 of step 120``, ``a file of torch.save, its entry 'model'``."""
    sha256: str
    """The digest of the file that has the weights."""
    size: int
    """The size of that file in bytes."""
    notes: list[str] = field(default_factory=list)
    """Remarks about the reading for the user."""


ENTRIES = ("state_dict", "model", "model_state_dict", "module", "net", "latest_model")
"""The entries in which a file of torch.save may have its state_dict, unless the whole file is one."""

SAFE_TORCH = (2, 10)
"""The first torch whose ``weights_only=True`` cannot be made to run code of the file."""

_TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_MAX_DEPTH = 3
_CODE_PATTERN = re.compile(r"unsupported (?:global: GLOBAL|GLOBAL|class) (\S+)", re.IGNORECASE)
_REASON_PATTERN = re.compile(r"WeightsUnpickler error: (.+)")
_CHUNK = 1 << 22
_MAX_BYTES = 1 << 50
_KNOWN_PREFIXES = {
    b"version https://git-lfs": ("is a git-lfs pointer, not the file itself", "fetch it with git lfs pull"),
    b"<": ("is a web page or XML, probably of a download that failed", "download it again"),
    b"{": ("is JSON", "name the files with the weights; if they are sharded, give a list"),
    b"\x1f\x8b": ("is compressed", "unpack it"),
    b"\x89HDF": ("is HDF5, as Keras writes it", "convert it to safetensors"),
}


def read(path: Path, *, entry: str | None = None) -> WeightSource:
    """Reads the weights in a file. Its first bytes determine the format.

    Args:
        path: The file.
        entry: The entry of a torch.save file with the weights, ``a.b`` for a nested one. When None, one of
            `ENTRIES`, or the whole file.

    Raises:
        NotFound: There is no such file.
        CheckpointError: The file is truncated, damaged, or not a weights file.
        Refused: Reading it would run code of the file, or needs a newer torch to be safe.
        UsageError: An entry is named, but it is not a torch.save file.
        OSError: It cannot be read.
    """
    try:
        with open(safe_read.open_fd(path), "rb") as file:
            start = file.read(64)
            file.seek(0)
            if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
                return _read_torch(path, file, entry)
    except FileNotFoundError as error:
        raise NotFound("there is no such file", received=str(path)) from error
    if path.suffix == ".safetensors" or start[8:9] == b"{":
        if entry is not None:
            raise UsageError(
                "`entry` is only for files of torch.save, and this is a safetensors file",
                fix="leave `entry` out",
            )
        return _read_safetensors(path, start)
    raise _unknown_format(start)


def _unknown_format(start: bytes) -> CheckpointError:
    """The error for a file that is not a weights file."""
    reason, fix = next(
        (words for prefix, words in _KNOWN_PREFIXES.items() if start.lstrip().startswith(prefix)),
        ("is neither a safetensors file nor one of torch.save", "give a file in one of these formats"),
    )
    return CheckpointError(reason, fix=fix)


def _read_safetensors(path: Path, start: bytes) -> WeightSource:
    if start.startswith(b"version https://git-lfs"):
        raise _unknown_format(start)
    data, digest = safe_read.read_hashed(path, max_bytes=_MAX_BYTES)
    leaves = safetensors_format.parse(data)
    strange = {leaf.dtype for leaf in leaves.values()} - _TYPES.keys()
    if strange:
        raise CheckpointError(
            f"it holds numbers of type {', '.join(sorted(strange))}, which roost does not read",
            fix="convert it to float32 or bfloat16",
        )
    skeleton = [
        {"$": "tensor", "leaf": name, "dtype": _TYPES[leaf.dtype], "shape": list(leaf.shape)}
        for name, leaf in leaves.items()
    ]
    found = state_tree.unpack(skeleton, leaves, may_view=True)
    return WeightSource(dict(zip(leaves, found, strict=True)), path, "a safetensors file", digest, len(data))


def _read_torch(path: Path, file: IO[bytes], entry: str | None) -> WeightSource:
    if _torch_version() < SAFE_TORCH:
        raise Refused(
            f"reading a file of torch.save with torch {torch.__version__} may run code that is in it",
            fix=f"update torch to {'.'.join(map(str, SAFE_TORCH))} or newer, or convert it to safetensors",
        )
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    file.seek(0)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        raise _load_error(str(error)) from error
    weights, where, notes = find_state_dict(content, entry)
    description = f"a file of torch.save{where}"
    return WeightSource(weights, path, description, digest.hexdigest(), size, notes)


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def _load_error(text: str) -> CheckpointError | Refused:
    """The error for a file that torch did not load."""
    if (match := _CODE_PATTERN.search(text)) is not None:
        return Refused(
            f"it holds {match[1].removesuffix('.')}, and loading that runs code from the file",
            fix="save it again where it was made: torch.save(model.state_dict(), path), or safetensors",
        )
    if "TorchScript" in text:
        return Refused(
            "it is a TorchScript archive, which is a program",
            fix="if you trust it, convert it with torch.save(torch.jit.load(path).state_dict(), other)",
        )
    reason = _REASON_PATTERN.search(text)
    first = reason[1] if reason else next(filter(None, text.splitlines()), "torch gives no reason")
    return CheckpointError(
        f"it cannot be read; probably it is truncated or damaged: {first[:200]}",
        fix="copy or download it again",
    )


def find_state_dict(content: Any, entry: str | None) -> tuple[Mapping[str, Any], str, list[str]]:
    """Returns the state_dict in the content of a file, the text that names its entry, and remarks.

    Raises:
        CheckpointError: The content has no tensors by name.
    """
    if entry is not None:
        found = _nested_entry(content, entry)
        if not _has_tensors(found):
            raise CheckpointError(
                f"it has no entry {entry!r} with tensors by name; {_describe_content(content)}"
            )
        return found, f", its entry {entry!r}", []
    path: list[str] = []
    while isinstance(content, Mapping) and len(path) < _MAX_DEPTH:
        named = [name for name in ENTRIES if _holds_tensors(content.get(name))]
        if _has_tensors(content) or not named:
            break
        notes = (
            [f"of its entries {', '.join(map(repr, named))} the first one is used"] if len(named) > 1 else []
        )
        path.append(named[0])
        content = content[named[0]]
        if _has_tensors(content):
            return content, f", its entry {'.'.join(path)!r}", notes
    if not _has_tensors(content):
        raise CheckpointError(
            f"it holds no tensors by name; {_describe_content(content)}",
            fix=f"name the entry with `entry: NAME`; without it, {', '.join(ENTRIES)} are tried",
        )
    return content, "", []


def _nested_entry(content: Any, entry: str) -> Any:
    """The entry of that name, or the nested entry of its dotted path."""
    if isinstance(content, Mapping) and entry in content:
        return content[entry]
    for name in entry.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _has_tensors(value: object) -> bool:
    """Whether a value is a mapping with string keys and tensors."""
    return (
        isinstance(value, Mapping)
        and all(isinstance(name, str) for name in value)
        and any(isinstance(one, Tensor) for one in value.values())
    )


def _holds_tensors(value: object) -> bool:
    inner = isinstance(value, Mapping) and any(_has_tensors(value.get(name)) for name in ENTRIES)
    return _has_tensors(value) or inner


def _describe_content(content: object) -> str:
    if not isinstance(content, Mapping):
        return f"it is a {type(content).__name__}"
    shown = [
        f"{json.dumps(str(name)[:60])} ({type(one).__name__})" for name, one in list(content.items())[:8]
    ]
    return f"its entries are {', '.join(shown) or 'none'}{' …' if len(content) > 8 else ''}"
