"""The load report: which weights were loaded into a module, and why others were not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from roost.train.weights.weight_names import format_names


class LoadReport(Struct, frozen=True, kw_only=True):
    """The result of loading weights. Names are those of the module, except in `unexpected` and `left_out`,
    which are those of the file."""

    num_tensors: int
    """Parameters and persistent buffers of the module."""
    loaded: list[str] = []
    missing: list[str] = []
    """Tensors of the module that are not in the file."""
    unexpected: list[str] = []
    """Tensors of the file that are not in the module."""
    mismatched: list[str] = []
    """Tensors in both that do not fit, each with the reason."""
    left_out: list[str] = []
    """Entries of the file left out by the mapping, or because they are not weights."""
    kept: list[str] = []
    """State of the module that is not a weight and not in the file: it stays as it was built."""
    converted: list[str] = []
    """Conversions of dtypes with their number: ``float16 in the file, float32 here (20)``."""
    unused: list[str] = []
    """Keys of the mapping with which no name of the file begins."""
    notes: list[str] = []
    """Further remarks for the user."""

    @property
    def summary(self) -> str:
        """``18 of 20 tensors``."""
        return f"{len(self.loaded)} of {self.num_tensors} tensor{'' if self.num_tensors == 1 else 's'}"

    def problems(self, *, missing: bool = True) -> list[str]:
        """Returns what did not fit, as parts of a sentence; empty if everything did.

        Args:
            missing: Whether tensors that the file lacks count.
        """
        found = [
            _part("missing", "not in the file", self.missing) if missing else "",
            _part("unexpected", "not in the model", self.unexpected),
            _part("mismatched", "", self.mismatched, is_text=True),
            _part("of the mapping", "no name in the file begins so", [repr(key) for key in self.unused]),
        ]
        return [part for part in found if part]

    def lines(self) -> list[str]:
        """Returns a line for everything but the number of loaded tensors."""
        found = [
            *self.problems(),
            _part("left out", "", self.left_out),
            _part("kept as built", "not in the file", self.kept),
            _part("converted", "", self.converted, is_text=True),
        ]
        return [*filter(None, found), *self.notes]


def _part(title: str, why: str, names: Sequence[str], *, is_text: bool = False) -> str:
    if not names:
        return ""
    shown = "; ".join([*names[:4], *([f"and {len(names) - 4} more"] if len(names) > 4 else [])])
    reason = f" ({why})" if why else ""
    return f"{len(names)} {title}{reason}: {shown if is_text else format_names(names)}"
