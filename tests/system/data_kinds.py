"""The kinds of data that a run can go on with, and how its sessions are ended in CI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

SHORT = ["net=mlp", "max_epochs=2", "pause=0.001", "data.batch_size=3", "data.valid.batch_size=20"]
SHORT += ["checkpoint.every=2", "hooks=[project.py:Ask,halts.py:Halt]"]
_LENGTHS = [*SHORT, "data.batch_size=null", "data.max_tokens=20"]
_VIRTUAL = [*SHORT, "data.steps_per_epoch=12"]
_HALVES = [*SHORT, "sets=halves"]
_BACK = ["on_non_finite=rollback", "bad.nan=[60]"]
KINDS: dict[str, list[str]] = {
    "drawing": [*SHORT, "sets=drawing", "data.shuffle=false", "data.drop_last=true"],
    "weighted": [*SHORT, "data.weighted=true"],
    "lengths": _LENGTHS,
    "sorted": [*SHORT, "data.sort_by_length=descending"],
    "virtual": _VIRTUAL,
    "limited": [*SHORT, "data.limit_train_batches=0.85", "data.limit_valid_batches=1"],
    "min_size": [*_HALVES, "data.mix={mode: min_size, batch_sizes: {a: 2, b: 1}}"],
    "max_size": [*_HALVES, "data.mix={mode: max_size_cycle, batch_sizes: {a: 2, b: 2}}"],
    "sequential": [*_HALVES, "data.mix={mode: sequential}"],
    "mixed": [*_HALVES, "data.mix={mode: weighted, weights: {a: 1, b: 2}}"],
    "empty": [*SHORT, "empty=true"],
    "flow": [*_VIRTUAL, "sets=flow", "valid_sets=flow", "data.valid.num_workers=0"],
    "stateful": [*_VIRTUAL, "sets=stateful", "valid_sets=stateful", "data.valid.num_workers=2"],
    "sampled": [*_VIRTUAL, "sets=sampled", "valid_sets=sampled", "data.limit_valid_batches=3"],
    "loader": [*SHORT, "sets=loader", "valid_sets=loader"],
    "torchdata": [*SHORT, "sets=torchdata", "valid_sets=torchdata"],
    "processes": [*SHORT, "sets=processes"],
    "nodes": [*_VIRTUAL, "sets=nodes", "valid_sets=nodes"],
}
"""What each changes in the settings of the one project; 12 steps an epoch or more."""
RARE: dict[str, list[str]] = {
    "sums": [*_LENGTHS, "data.count_padding=false", "data.sort_by_length=ascending"],
    "all": [*SHORT, "data.weighted=true", "data.steps_per_epoch=17", "data.limit_train_batches=27"],
    "gaps": [*_VIRTUAL, "sets=flow", "empty=true"],
    "halves empty": [*_HALVES, "data.batch_size=2", "data.mix={mode: min_size}", "empty=true"],
    "flow back": [*_VIRTUAL, "sets=flow", *_BACK],
    "torchdata back": [*SHORT, "sets=torchdata", *_BACK],
    "nodes back": [*_VIRTUAL, "sets=nodes", *_BACK],
    "mixed back": [*_HALVES, "data.mix={mode: weighted, weights: {a: 1, b: 2}}", *_BACK],
    "virtual skip": [*_VIRTUAL, "on_step_error=skip", "bad.error=[33]"],
}
"""For the soak alone."""
STREAMS = ("flow", "stateful", "gaps", "sampled", "flow back")
"""Go on with the number of workers with which they began."""
FOREIGN = {
    "loader": "iterated again",
    "processes": "workers' generators",
    **dict.fromkeys(("torchdata", "nodes", "torchdata back", "nodes back"), ""),
}
"""Have their own workers, if any; and what is named inexact once such a run has gone on."""

ENDS = ("stop", "kill", "trainer", "fetch", "before", "edge", "after", "worker")
"""How a session is ended, in the order of their places in the run: SIGTERM; SIGKILL to all, to the trainer
alone, to the process that reads a sample; to all with a checkpoint of one step before the edge of the epoch,
of that step, and of the one after; to a loader worker."""


class Case(NamedTuple):
    """A run, and how its sessions end."""

    kind: str
    """One of `KINDS`."""
    workers: int
    """With which it begins."""
    legs: list[tuple[str, int]]
    """How each session ends, and the workers that the next one is asked for."""


def cases() -> list[Case]:
    """Every pair of a kind, an end and a number of workers is in one of them; but streams keep theirs."""
    found = []
    for number, kind in enumerate(KINDS):
        for begun_with in (1, 2) if kind in STREAMS else (number % 3,):
            asked = [(begun_with + leg + 1) % 3 for leg in range(len(ENDS))]
            asked[-2] = 1 + number % 2  # one of them will be killed
            found.append(Case(kind, begun_with, list(zip(ENDS, asked, strict=True))))
    return found


def compare(
    kind: str, expected: Mapping[str, Any], got: Mapping[str, Any], *, may_be_whole: bool = False
) -> list[str]:
    """The differences; of an external loader only in what is trained and recorded.

    Args:
        kind: Of the run.
        expected: The uninterrupted one's `exact.fingerprint`.
        got: That of one that was interrupted.
        may_be_whole: It may have never gone on, so that nothing need be named.

    Raises:
        AssertionError: Something is named inexact that should not be, or the other way round.
    """
    said, wanted = " ".join(got["inexact"]), FOREIGN.get(kind, "")
    is_right = wanted in said if wanted else not said
    assert is_right or (may_be_whole and not said), f"inexact: {said or 'nothing'}"
    left_out = {"inexact", "data"} if kind in FOREIGN else set[str]()
    return [name for name in expected if got[name] != expected[name] and name not in left_out]
