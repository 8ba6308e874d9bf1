"""What became of weights that were to be loaded, in numbers and in words."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from roost.train.weights.weight_names import format_names


class LoadReport(Struct, frozen=True, kw_only=True):
    """Names are those of the module, but for `unexpected` and `left_out`, which are those of the file."""

    num_tensors: int
    """Parameters and persistent buffers of the module."""
    loaded: list[str] = []
    missing: list[str] = []
    """Of the module, and not in the file."""
    unexpected: list[str] = []
    """Of the file, and not in the module."""
    mismatched: list[str] = []
    """In both, and they do not fit; each with the reason in words."""
    left_out: list[str] = []
    """Of the file, by the mapping, or because it is no weight."""
    kept: list[str] = []
    """Of the module, not in the file, and no weight: it is as it was built."""
    converted: list[str] = []
    """Types of numbers, in words: ``float16 there, float32 here (20)``."""
    unused: list[str] = []
    """Keys of the mapping that no name of the file begins with."""
    notes: list[str] = []
    """What else a person should hear."""

    @property
    def summary(self) -> str:
        """``18 of 20 tensors``."""
        return f"{len(self.loaded)} of {self.num_tensors} tensor{'' if self.num_tensors == 1 else 's'}"

    def problems(self, *, missing: bool = True) -> list[str]:
        """What makes it more than a plain load, a part of a sentence each.

        Args:
            missing: Whether what the file lacks counts.
        """
        found = [
            _part("missing", "not there", self.missing) if missing else "",
            _part("unexpected", "not here", self.unexpected),
            _part("mismatched", "", self.mismatched, is_text=True),
            _part("of the mapping", "no name there begins so", [repr(key) for key in self.unused]),
        ]
        return [part for part in found if part]

    def lines(self) -> list[str]:
        """All but the number of those that were loaded, a line each."""
        found = [
            *self.problems(),
            _part("left out", "", self.left_out),
            _part("kept as built", "not there", self.kept),
            _part("converted", "", self.converted, is_text=True),
        ]
        return [*filter(None, found), *self.notes]


def _part(title: str, why: str, names: Sequence[str], *, is_text: bool = False) -> str:
    if not names:
        return ""
    shown = "; ".join([*names[:4], *([f"and {len(names) - 4} more"] if len(names) > 4 else [])])
    said = f" ({why})" if why else ""
    return f"{len(names)} {title}{said}: {shown if is_text else format_names(names)}"
