"""Files of weights that roost did not write: safetensors, and those of torch.save. No code is run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from roost.base import safe_read, safetensors_format, state_tree
from roost.base.errors import CheckpointError, NotFound, Refused, UsageError
from roost.train.weights.weight_source import WeightSource

ENTRIES = ("state_dict", "model", "model_state_dict", "module", "net")
"""Where a file of torch.save may keep its state dict, unless it is one as a whole."""

SAFE_TORCH = (2, 10)
"""Before it, ``weights_only=True`` could be brought to run code of the file."""

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
    b"version https://git-lfs": ("is a pointer of git-lfs, not the file itself", "fetch it: git lfs pull"),
    b"<": ("is a web page or XML; a download that failed, probably", "download it again"),
    b"{": ("is JSON", "name the files that hold the weights; of several shards a list of them"),
    b"\x1f\x8b": ("is compressed", "unpack it"),
    b"\x89HDF": ("is HDF5, as Keras writes it", "convert it to safetensors"),
}


def read(path: Path, *, entry: str | None = None) -> WeightSource:
    """The weights in a file; what it is, its first bytes tell.

    Args:
        path: The file.
        entry: Which entry of a file of torch.save holds them, ``a.b`` for one inside another; None: one of
            `ENTRIES`, or the whole.

    Raises:
        NotFound: There is no such file.
        CheckpointError: It is cut off, damaged, or no file of weights.
        Refused: It needs code to be run, or a newer torch to be read safely.
        UsageError: It is no file of torch.save, and an entry is named.
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
            raise UsageError("`entry` is for files of torch.save, and this is none", fix="leave it out")
        return _read_safetensors(path, start)
    raise CheckpointError(*_unknown_format(start))


def _unknown_format(start: bytes) -> tuple[str]:
    said, fix = next(
        (words for beginning, words in _KNOWN_PREFIXES.items() if start.lstrip().startswith(beginning)),
        ("is neither a safetensors file nor one of torch.save", "give one of these"),
    )
    return (f"{said}; {fix}",)


def _read_safetensors(path: Path, start: bytes) -> WeightSource:
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(*_unknown_format(start))
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
            f"to read a file of torch.save with torch {torch.__version__} may run code that is in it",
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
    weights, where, notes = _find_state_dict(content, entry)
    about = f"a file of torch.save{where}"
    return WeightSource(weights, path, about, digest.hexdigest(), size, notes)


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def _load_error(said: str) -> CheckpointError | Refused:
    """Why torch did not load a file."""
    if (match := _CODE_PATTERN.search(said)) is not None:
        return Refused(
            f"it holds {match[1].removesuffix('.')}, and to load that is to run code from the file",
            fix="where it was made, save torch.save(model.state_dict(), path), or a safetensors file",
        )
    if "TorchScript" in said:
        return Refused(
            "it is a TorchScript archive, which is a program",
            fix="save torch.save(torch.jit.load(path).state_dict(), other) yourself, if you trust it",
        )
    reason = _REASON_PATTERN.search(said)
    first = reason[1] if reason else next(filter(None, said.splitlines()), "torch gives no reason")
    return CheckpointError(
        f"it cannot be read, probably it is cut off or damaged: {first[:200]}",
        fix="copy or download it again",
    )


def _find_state_dict(content: Any, entry: str | None) -> tuple[Mapping[str, Any], str, list[str]]:
    """The state dict in what a file holds, which entry it is, and what to say about that."""
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
            [f"of its entries {', '.join(map(repr, named))} the first one is taken"] if len(named) > 1 else []
        )
        path.append(named[0])
        content = content[named[0]]
        if _has_tensors(content):
            return content, f", its entry {'.'.join(path)!r}", notes
    if not _has_tensors(content):
        raise CheckpointError(
            f"it holds no tensors by name; {_describe_content(content)}",
            fix=f"name the entry: `entry: NAME`; by themselves {', '.join(ENTRIES)} are looked for",
        )
    return content, "", []


def _nested_entry(content: Any, entry: str) -> Any:
    """The entry of that name, or the one inside others that its dots lead to."""
    if isinstance(content, Mapping) and entry in content:
        return content[entry]
    for name in entry.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _has_tensors(value: object) -> bool:
    """Whether it holds tensors by names that are texts."""
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
