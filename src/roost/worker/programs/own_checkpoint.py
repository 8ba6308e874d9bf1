"""The newest whole checkpoint that a program itself has written."""

# Standard library only

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from roost.package.program_request import FOLDERS_WITHOUT_RESULTS, ProgramRequest
from roost.worker.programs.own_lines import print_own

_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".mdl", ".pth.tar", ".pt.tar")
_UNSURE_SUFFIXES = (".tar", ".pkl", ".bin")
"""Also of data: such a file counts where there is no other one."""
_FOLDER_MARKS = ("trainer_state.json", "random_states_0.pkl")
"""A folder with such a file is one checkpoint, as Hugging Face's Trainer and accelerate write them."""
_EARLY_PARTS = ("optimizer.bin", "training_args.bin")
"""What these tools write into the folder before its mark: without the mark, a kill has cut the folder."""
_MAX_FILES = 20_000
"""So many files and folders are looked at."""
_MAX_HEADER = 1 << 27


def checkpoint_folder(package: Path) -> Path:
    """Returns the folder that a program gets as ROOST_CHECKPOINT_DIR."""
    return package / "Checkpoints"


def newest(
    package: Path, program: ProgramRequest, *, copied: Mapping[str, Any] = MappingProxyType({})
) -> Path | None:
    """Returns the newest checkpoint of a program that is whole; None if there is none. A file that a kill has
    cut is passed over, as far as its format shows that.

    It is looked for in the folder of ROOST_CHECKPOINT_DIR and, if the program runs in a copy, in all files
    that it has made there. With a pattern, everything that matches counts alike. Without one folders come
    before files, as a kill leaves parts of a folder that is no checkpoint yet, and files of sure kinds before
    others.

    Args:
        package: The package of the program.
        program: The program.
        copied: The files that were copied into the package, as the manifest has them: what is still as it was
            copied is no checkpoint of this run.
    """
    roots = [checkpoint_folder(package)] if program.cwd is None else [checkpoint_folder(package), package]
    pattern = program.checkpoint_pattern
    found = [(path, _modified(path)) for root in roots for path in _candidates(root, pattern)]
    ordered = sorted(found, key=lambda one: (0 if pattern else _kind(one[0]), one[1]), reverse=True)
    return next((path for path, _ in ordered if not _is_copy(path, package, copied) and is_whole(path)), None)


def _kind(path: Path) -> int:
    """Returns the larger number for what is more surely a checkpoint of the program."""
    if path.is_dir():
        return 2
    return 1 if path.name.endswith(_SUFFIXES) else 0


def _is_copy(path: Path, package: Path, copied: Mapping[str, Any]) -> bool:
    one = _dated_file(path)
    entry = copied.get(os.path.relpath(one, package))
    try:
        if entry is None or one.stat().st_size != entry.get("size"):
            return False
        with one.open("rb") as file:
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"])
    except OSError:
        return False


def _candidates(root: Path, pattern: str | None) -> Iterator[Path]:
    seen = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(
            name for name in names if not (name.startswith(".") or name in FOLDERS_WITHOUT_RESULTS)
        )
        seen += len(names) + len(files)
        if seen > _MAX_FILES:
            print_own(f"not all files were searched for checkpoints, only {_MAX_FILES:,}")
            return
        if pattern is not None:
            inside = (Path(folder, name) for name in (*names, *files))
            yield from (one for one in inside if one.match(pattern) and _is_below(one, root))
            continue
        if any(name in _FOLDER_MARKS for name in files):
            names.clear()
            yield Path(folder)
            continue
        if any(name in _EARLY_PARTS for name in files):
            continue
        for name in files:
            path = Path(folder, name)
            is_one = name.endswith((*_SUFFIXES, *_UNSURE_SUFFIXES))
            if is_one and not path.is_symlink():
                yield path


def _is_below(path: Path, root: Path) -> bool:
    """Whether a path, or what it links to, is in the package: the data of the project is no result."""
    return path.resolve().is_relative_to(root.resolve())


def _dated_file(path: Path) -> Path:
    """Returns the file by whose time a checkpoint is dated: of a folder its mark, else its newest file."""
    if not path.is_dir():
        return path
    marks = (path / name for name in _FOLDER_MARKS)
    inside = (one for one in path.rglob("*") if one.is_file())
    return next((one for one in marks if one.exists()), None) or max(inside, key=_time, default=path)


def _modified(path: Path) -> float:
    return _time(_dated_file(path))


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is complete, as far as its format shows it: the archives of torch end with a
    directory, and a file of safetensors begins with the size of its tensors."""
    if path.is_dir():
        files = [one for one in path.rglob("*") if one.is_file()]
        parts = [one for one in files if one.name.endswith((*_SUFFIXES, *_UNSURE_SUFFIXES))]
        if any((path / name).exists() for name in _FOLDER_MARKS):
            return bool(parts) and all(map(is_whole, parts))
        is_cut = any((path / name).exists() for name in _EARLY_PARTS)
        return bool(files) and not is_cut and all(map(is_whole, parts))
    try:
        if not path.is_file():  # opening a pipe would wait
            return False
        with path.open("rb") as file:
            begin, size = file.read(8), os.fstat(file.fileno()).st_size
            if path.suffix == ".safetensors":
                return _is_whole_safetensors(file.read(_header_size(begin)), size)
        return zipfile.is_zipfile(path) if begin.startswith(b"PK\x03\x04") else size > 0
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error):
        return False


def _header_size(begin: bytes) -> int:
    size = int(struct.unpack("<Q", begin)[0])
    if size > _MAX_HEADER:
        raise ValueError("this is no header")
    return size


def _is_whole_safetensors(header: bytes, size: int) -> bool:
    import json

    ends = [one["data_offsets"][1] for name, one in json.loads(header).items() if name != "__metadata__"]
    return size == 8 + len(header) + max(ends, default=0)
