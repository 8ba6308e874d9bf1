"""``data.stage``: archives that are unpacked to a local disk before the data are built."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from roost.config.sections.field_types import Positive, help_text

_Number = Annotated[float, Meta(gt=0)]


class StagedArchiveSettings(Struct, frozen=True, kw_only=True):
    """``data.stage``, or an entry of it."""

    archive: Annotated[
        str, help_text("a file, relative to the project, or a URL: zip, tar, tar.gz, .bz2, .xz or .zst")
    ]
    name: Annotated[
        str | None, help_text("NAME in ${staged.NAME}; by default the file's name without its ending")
    ] = None
    sha256: Annotated[
        Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")] | None,
        help_text(
            "checksum of the archive; by default that of the first session is kept",
            fix="give the 64 hexadecimal digits that `sha256sum FILE` prints, in quotes",
        ),
    ] = None
    to: Annotated[
        str | None,
        help_text("folder on a fast disk; by default $ROOST_SCRATCH, $TMPDIR, or the user's cache"),
    ] = None
    keep_gb: Annotated[
        _Number | None,
        help_text("size of all staged archives there; above it the least recently used are removed"),
    ] = None
    max_gb: Annotated[_Number, help_text("most GB that the archive may unpack to")] = 1000.0
    max_files: Annotated[Positive, help_text("most files that the archive may have")] = 20_000_000
    max_ratio: Annotated[
        _Number, help_text("most bytes that one byte may unpack to, in all, from 1 GB on")
    ] = 200.0


Stage = Annotated[
    str | StagedArchiveSettings | list[str | StagedArchiveSettings] | None,
    help_text("archive that is unpacked to a local disk, once; ${staged} is its folder there"),
]
