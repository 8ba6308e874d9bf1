"""What the package of a program says about its program: keys of its request.json."""

# Standard library only

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, Self

CHECKPOINT_FIELD = "{checkpoint}"
"""The placeholder in ``resume_with`` for the path of the program's newest checkpoint."""

STAGE_OPTION = "--stage"
"""The option that names archives to be unpacked before the program starts."""

FOLDERS_WITHOUT_RESULTS = frozenset(["records", "sessions", "system", "media", "wandb", "mlruns"])
"""Folders of a package in which nothing of the program is searched for: roost's own, and those of loggers."""


class ProgramRequest(NamedTuple):
    """A program, as it was requested."""

    command: list[str]
    """The program and its arguments."""
    project: str
    """The folder in which it was typed, or that was copied."""
    cwd: str | None = None
    """Its working folder, relative to the package; None: ``project`` itself, nothing was copied."""
    resume_with: list[str] = []  # noqa: RUF012  - a named tuple; nothing changes it
    """Arguments that are added from the second session on, with `CHECKPOINT_FIELD`."""
    metrics: dict[str, str] = {}  # noqa: RUF012
    """Regular expressions for metrics in its output, by their names."""
    checkpoint_pattern: str | None = None
    """The pattern of the files or folders that are its checkpoints; None: those of the usual kinds."""
    copied_into: str = "."
    """The folder of the package with the copy; mostly the package itself."""
    remote: dict[str, Any] = {}  # noqa: RUF012
    """The settings of its remote copy (`roost.config.sections.remote`); empty: it has none."""
    stage: list[str] = []  # noqa: RUF012
    """Archives that are unpacked on the machine before it starts: absolute paths, or URLs."""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Returns the program of a package with this request.json."""
        return cls(
            command=[str(one) for one in fields.get("command") or ()],
            project=str(fields.get("project") or ""),
            cwd=fields.get("cwd"),
            resume_with=[str(one) for one in fields.get("resume_with") or ()],
            metrics={str(name): str(pattern) for name, pattern in (fields.get("metrics") or {}).items()},
            checkpoint_pattern=fields.get("checkpoint_pattern"),
            copied_into=str(fields.get("copied_into") or "."),
            remote=dict(fields.get("remote") or {}),
            stage=[str(one) for one in fields.get("stage") or ()],
        )

    @classmethod
    def read(cls, package: Path) -> Self:
        """Reads the program of a package. Raises OSError or ValueError if request.json is damaged."""
        return cls.of(dict(json.loads((package / "request.json").read_bytes())))

    def to_json(self) -> dict[str, Any]:
        """Returns the keys for request.json; those that say nothing are left out."""
        optional = {
            "cwd": self.cwd,
            "resume_with": self.resume_with,
            "metrics": self.metrics,
            "remote": self.remote,
            "stage": self.stage,
            "checkpoint_pattern": self.checkpoint_pattern,
            "copied_into": self.copied_into if self.copied_into != "." else None,
        }
        found = {name: value for name, value in optional.items() if value}
        return {"command": self.command, "project": self.project, **found}

    def folder(self, package: Path) -> Path:
        """Returns the working folder of the program."""
        return package / self.cwd if self.cwd is not None else Path(self.project)

    def command_line(self, checkpoint: Path | None, *, is_first: bool) -> list[str]:
        """Returns the command line of a session.

        Args:
            checkpoint: The newest checkpoint of the program; None: there is none.
            is_first: Whether it is the first session of the package, which adds nothing.
        """
        needs_one = any(CHECKPOINT_FIELD in one for one in self.resume_with)
        if is_first or (needs_one and checkpoint is None):
            return self.command
        return [*self.command, *(one.replace(CHECKPOINT_FIELD, str(checkpoint)) for one in self.resume_with)]
