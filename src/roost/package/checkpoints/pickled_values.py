"""Values of a checkpoint that only a pickle can hold: what a project of DLNest returns from `getSaveDict`.

Unpickling runs code that the file names. So a pickle is signed with a key of the user who wrote it, and only
what this key has signed is read without ``--trust``. The key is a file in the user's config folder: a package
from elsewhere has another signature, or none. Commands that only read a package never unpickle.
"""

# Not durable: torch.save into memory

from __future__ import annotations

import errno
import fcntl
import functools
import hmac
import io
import os
import secrets
import stat
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from roost.base import durable, safe_read
from roost.base.config_folder import config_folder
from roost.base.errors import CheckpointError

SUFFIX = ".pickled.pt"
"""The values of a part, in the order of the path, as one list that torch.save has written."""
KEY_NAME = "pickle.key"
_KEY_BYTES = 32
_OPTION = "--trust"


class Pickles(Enum):
    """Which pickles a reader accepts."""

    OWN = "own"
    """Those that are signed with the key of this user."""
    ALL = "all"
    """Also those of others: the user trusts the origin of the package."""

    @classmethod
    def of(cls, *, trust: bool) -> Pickles:
        """Returns which pickles a session reads whose user has, or has not, given ``--trust``."""
        return cls.ALL if trust else cls.OWN


def key_path() -> Path:
    """Returns the path of the user's key; it need not exist."""
    return Path(config_folder(os.environ)) / KEY_NAME


def signature_of(sha256: str) -> str | None:
    """Returns the signature of a pickle with this digest; None, after a printed line, if there is no key and
    none can be made: then only ``--trust`` reads the pickle."""
    try:
        key = _read_key() or _make_key()
    except OSError as error:
        _warn_once(str(error))
        return None
    return _signature(key, sha256)


@functools.cache
def _warn_once(problem: str) -> None:
    print(
        f"a pickle of this checkpoint has no signature, so `roost continue` will need {_OPTION}: {problem}",
        flush=True,
    )


def _signature(key: bytes, sha256: str) -> str:
    return hmac.digest(key, sha256.encode(), "sha256").hex()


def _read_key() -> bytes | None:
    """Returns the key; None if there is none yet.

    Raises:
        OSError: The file cannot be read, is not a key, or belongs to or may be read by others.
    """
    path = key_path()
    try:
        fd = safe_read.open_fd(path)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(errno.EPERM, "others may read the key (chmod 600 it, if it is yours)", path)
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(errno.EINVAL, "is not a key that roost wrote (remove it for a new one)", path)
    return key


def _make_key() -> bytes:
    path = key_path()
    durable.make_folders(path.parent)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # ranks and other runs may make it at the same time
        key = _read_key()
        if key is None:
            key = secrets.token_bytes(_KEY_BYTES)
            durable.write(path, key, mode=0o600)
        return key
    finally:
        os.close(folder)


def dump(values: Sequence[tuple[str, Any]]) -> bytes:
    """Returns the pickle of values, given with their paths in the state.

    Raises:
        CheckpointError: A value cannot be pickled; the message names its path.
    """
    try:
        return _pickled([value for _, value in values])
    except Exception as error:  # any error of a class of the project
        path, problem = _first_failure(values) or ("value", error)
        raise CheckpointError(
            f"the state at {path!r} can be neither packed nor pickled: {problem}",
            fix="leave it out of getSaveDict(), or give its class __getstate__",
        ) from error


def _first_failure(values: Sequence[tuple[str, Any]]) -> tuple[str, Exception] | None:
    for path, value in values:
        try:
            _pickled(value)
        except Exception as error:  # noqa: BLE001  - any error of a class of the project
            return path, error
    return None


def _pickled(value: Any) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def load(data: memoryview[Any], *, device: str) -> list[Any]:
    """Returns the values of a pickle, whose origin the caller has checked; runs the code that it names.

    Args:
        data: What `dump` returned.
        device: The device of its tensors.

    Raises:
        CheckpointError: A class cannot be imported or restored.
    """
    import torch

    try:
        return list(torch.load(io.BytesIO(data), map_location=device, weights_only=False))
    except Exception as error:
        raise CheckpointError(
            f"its pickled values cannot be restored: {type(error).__name__}: {error}",
            fix="continue with the code and the libraries that wrote it",
        ) from error


def require_accepted(name: str, sha256: str, signature: object, accepted: Pickles) -> None:
    """Checks that a reader accepts a pickle.

    Args:
        name: The name of its checkpoint, for the message.
        sha256: Its digest, which the caller has compared with the bytes.
        signature: Its entry in the manifest, which may be missing.
        accepted: What the reader accepts.

    Raises:
        CheckpointError: It is not signed with the key of this user, or that key cannot be read.
    """
    if accepted is Pickles.ALL:
        return
    try:
        key, problem = _read_key(), ""
    except OSError as error:
        key, problem = None, f" ({error.strerror})"
    if (
        key is not None
        and isinstance(signature, str)
        and hmac.compare_digest(_signature(key, sha256).encode(), signature.encode())
    ):
        return
    raise CheckpointError(
        f"{name} has Python objects in a pickle that is not signed with your key{problem}: reading them may "
        "run any code",
        where=key_path(),
        fix=f"if you trust the origin of the package, add {_OPTION}",
    )
