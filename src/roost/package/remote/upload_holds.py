"""The checkpoints that stay in a package because its remote copy lacks them (``remote.hold_checkpoints``)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from roost.package.checkpoints.checkpoint import Manifest
from roost.package.remote import remote_status


def held_ids(
    package: Path, manifests: Sequence[Manifest], kept: Collection[int], *, max_mb: int
) -> tuple[set[int], set[int]]:
    """Returns which checkpoints must stay until they are uploaded, of those that no track keeps; and which of
    these would take more disk space than is allowed, and are removed nevertheless.

    A checkpoint that is older than what the copy has is not uploaded any more, so it need not stay. The
    oldest of the others are held first: one of them is being uploaded.

    Args:
        package: The package.
        manifests: All of its checkpoints.
        kept: The ids that tracks keep.
        max_mb: The disk space for checkpoints that are only held.
    """
    status = remote_status.read(package)
    copied, step = (status.checkpoints, status.step) if status is not None else ([], None)
    lacking = [
        one
        for one in sorted(manifests, key=lambda manifest: manifest.id)
        if one.id not in kept and one.id not in copied and (step is None or one.step > step)
    ]
    held, num_bytes = set[int](), 0
    for one in lacking:
        num_bytes += one.size_bytes
        if num_bytes > max_mb * 1_000_000:
            break
        held.add(one.id)
    return held, {one.id for one in lacking} - held
