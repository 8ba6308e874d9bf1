"""The table of all known causes, and the search in it."""

from __future__ import annotations

from collections.abc import Iterator

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes import (
    compile_causes,
    cuda_causes,
    determinism_causes,
    file_causes,
    loader_causes,
    memory_causes,
    module_causes,
    nonfinite_causes,
    tensor_causes,
    weight_causes,
)
from roost.worker.causes.cause import Cause, CauseRule, FailureContext

CAUSES: tuple[CauseRule, ...] = (
    *memory_causes.CAUSES,
    *cuda_causes.CAUSES,
    *compile_causes.CAUSES,
    *determinism_causes.CAUSES,
    *weight_causes.CAUSES,
    *loader_causes.CAUSES,
    *module_causes.CAUSES,
    *file_causes.CAUSES,
    *nonfinite_causes.CAUSES,
    *tensor_causes.CAUSES,
)
"""Every rule recognises one kind of failure and no other, so the order does not matter."""


def find(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """Returns the cause of an error, or of an error it was raised ``from``; None if it is not known.

    An error that was only being handled at that time (``__context__``) is not examined: it may be unrelated.
    """
    for one in _candidates(record):
        for rule in CAUSES:
            if cause := _try_rule(rule, one, context):
                return cause
    return None


def _try_rule(rule: CauseRule, record: ExceptionRecord, context: FailureContext) -> Cause | None:
    try:
        return rule(record, context)
    except Exception:  # noqa: BLE001  - the package may be gone; the error itself must be reported
        return None


def _candidates(record: ExceptionRecord) -> Iterator[ExceptionRecord]:
    current: ExceptionRecord | None = record
    while current is not None:
        yield current
        if len(current.members) == 1:  # a group with one member is treated as that member
            yield from _candidates(current.members[0])
        current = current.cause
