"""The description of a set: type, size, lengths, weights and classes. No sample is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from roost.base.errors import RoostError
from roost.package.results.data_report import Distribution, LabelClasses, LengthBin, SetReport
from roost.project.batch_plans import sample_column
from roost.project.data_loaders import set_kind
from roost.train.data.plans.sample_columns import lengths_of, weights_of

_KINDS = {
    "indexed": "map-style",
    "iterable": "iterable",
    "sampled": "makes whole batches",
    "foreign": "makes its own batches",
}
_MAX_BINS = 10
_MAX_CLASS_NAMES = 10
_SKEW_FACTOR = 20
"""If the longest sample exceeds this multiple of the median, equal bins would put nearly all samples into
one: then each bin is twice as wide as the one before."""


def describe_set(name: str, dataset: Any) -> SetReport:
    """Describes a set: its kind, number of samples, lengths, weights and classes.

    Args:
        name: Name of the set: train, valid/NAME, ...
        dataset: Any set that `roost.Data` takes.
    """
    kind = set_kind(dataset)
    inner = getattr(dataset, "dataset", None) if kind == "foreign" else None
    size = _size(dataset if inner is None else inner) if kind != "sampled" else None
    unreadable: list[str] = []
    spreads = {
        what: _spread(dataset, what, size, unreadable) if kind == "indexed" else None
        for what in ("lengths", "weights")
    }
    of = f" of {type(inner).__name__}" if inner is not None else ""
    return SetReport(
        name=name,
        class_name=type(dataset).__name__ + of,
        kind=_KINDS[str(kind)],
        num_samples=size,
        classes=_classes(dataset if inner is None else inner),
        unreadable=unreadable,
        **spreads,
    )


def _size(dataset: Any) -> int | None:
    # len() of a DataLoader over an iterable, or of torchdata's, may raise.
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


# ---- a number for each sample ---------------------------------------------------------------------------


def _spread(dataset: Any, what: str, size: int | None, unreadable: list[str]) -> Distribution | None:
    try:
        found = sample_column(dataset, what)
        if found is None:
            return None
        # Checked as training does, so that a column that training would refuse is reported here.
        check = lengths_of if what == "lengths" else weights_of
        check(found, setting=what, set_size=size)
    except RoostError as error:
        unreadable.append(error.message)
        return None
    except Exception as error:  # noqa: BLE001  - reported; only some settings need the column
        unreadable.append(f"its {what} cannot be read: {type(error).__name__}: {error}")
        return None
    values = np.asarray(found)
    return Distribution(
        least=float(values.min()),
        median=float(np.median(values)),
        mean=float(values.mean()),
        most=float(values.max()),
        num_zero=int((values == 0).sum()),
        bins=histogram(values.astype(np.int64)) if what == "lengths" else [],
    )


def histogram(lengths: npt.NDArray[np.int64]) -> list[LengthBin]:
    """Counts lengths, (num_samples,), in a few bins from the shortest to the longest."""
    least, most = int(lengths.min()), int(lengths.max())
    if most > _SKEW_FACTOR * max(1.0, float(np.median(lengths))):
        edges = [least]
        while edges[-1] <= most:
            edges.append(max(edges[-1] + 1, 2 * edges[-1]))
    else:
        width = -(-(most + 1 - least) // _MAX_BINS)
        edges = list(range(least, most + 1 + width, width))
    # Counted by index among the edges: np.histogram would compute in floats.
    places = np.searchsorted(np.asarray(edges), lengths, side="right") - 1
    counts = np.bincount(places, minlength=len(edges) - 1).tolist()
    bounds = zip(edges, edges[1:], counts, strict=False)
    return [LengthBin(low, min(high - 1, most), number) for low, high, number in bounds if low <= most]


# ---- classes --------------------------------------------------------------------------------------------


def _classes(dataset: Any) -> LabelClasses | None:
    """Returns the classes by torchvision's attributes: ``classes`` names them, ``targets`` labels samples."""
    names, counts = _names(dataset), _counts(dataset)
    number = max(len(names), len(counts))
    if not number:
        return None
    return LabelClasses(
        number=number,
        names=list(map(str, names[:_MAX_CLASS_NAMES])),
        fewest=(min(counts) if len(counts) == number else 0) if counts else None,
        most=max(counts) if counts else None,
    )


def _names(dataset: Any) -> Sequence[Any]:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    try:
        found = getattr(dataset, "classes", None)
    except Exception:  # noqa: BLE001  - a set may use this name for anything
        return []
    return found if isinstance(found, list | tuple) else []


def _counts(dataset: Any) -> list[int]:
    """Returns the number of samples of each label that occurs."""
    try:
        labels = np.asarray(sample_column(dataset, "targets"))
    except Exception:  # noqa: BLE001  - a set may use this name for anything
        return []
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        return []
    return [int(one) for one in np.unique(labels, return_counts=True)[1]]
