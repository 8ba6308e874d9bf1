"""``remote.hold_checkpoints``: checkpoints that the run's own retention keeps until they are uploaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from roost.base.text.byte_sizes import format_bytes
from roost.config.sections.remote import RemoteSettings
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.remote import remote_status
from roost.package.remote.upload_plan import KeepCount

_MB = 10**6


class UploadHold:
    """Names the checkpoints that are to stay although no track keeps them.

    Args:
        package: The package's folder.
        settings: The section ``remote``.
    """

    def __init__(self, package: Path, settings: RemoteSettings) -> None:
        self._package, self._settings = package, settings
        self._has_warned = False

    def __call__(self, found: Sequence[Manifest], kept: Collection[int]) -> set[int]:
        """Returns the ids; prints one line when ``remote.max_held_mb`` is reached.

        Args:
            found: All checkpoints.
            kept: The ids that a track keeps.
        """
        status = remote_status.read(self._package)
        waiting = held_checkpoints(
            found, kept, uploaded=status.checkpoints if status is not None else (), keep=self._settings.keep
        )
        held, size = set[int](), 0
        for manifest in reversed(waiting):  # the newest first
            size += manifest.size_bytes
            if size > self._settings.max_held_mb * _MB:
                self._warn(manifest, size)
                break
            held.add(manifest.id)
        return held

    def _warn(self, manifest: Manifest, size: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            print(
                f"checkpoints of {format_bytes(size)} wait for their upload, more than remote.max_held_mb: "
                f"that of step {manifest.step} is removed, and older ones from now on",
                flush=True,
            )


def held_checkpoints(
    found: Sequence[Manifest], kept: Collection[int], *, uploaded: Collection[int], keep: KeepCount
) -> list[Manifest]:
    """Returns the checkpoints that no track keeps and that wait for their upload, by ascending id: those that
    are newer than the copy; if the copy keeps all, each one that it lacks.

    Args:
        found: All checkpoints.
        kept: The ids that a track keeps.
        uploaded: The ids in the copy.
        keep: ``remote.keep``.
    """
    newest = max(uploaded, default=-1) if keep != "all" else -1
    waiting = (one for one in found if one.id not in kept and one.id not in uploaded and one.id > newest)
    return sorted(waiting, key=lambda manifest: manifest.id)
