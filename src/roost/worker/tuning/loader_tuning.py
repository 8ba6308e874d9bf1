"""The tuning of the loader: the number of loader workers, and of the batches that each fetches in advance."""

from __future__ import annotations

from collections.abc import Callable

from roost.base.text.byte_sizes import format_bytes
from roost.package.results.tuning_report import TargetFinding
from roost.train.data.batches import Batches
from roost.train.data.external_loader import ExternalLoader
from roost.train.data.loader import Loader
from roost.train.data.workers import worker_count
from roost.train.data.workers.worker_benchmark import BatchCost
from roost.train.data.workers.worker_pool import SMALL_BYTES
from roost.worker.tuning.budget import Budget
from roost.worker.tuning.candidate_rounds import CandidateRounds
from roost.worker.tuning.measured_run import MeasuredRun

WORKERS, PREFETCH = "data.num_workers", "data.prefetch"
_PREFETCHES = (1, 2, 4, 8)
_EXTERNAL = "the set is a loader of its own, which makes its batches itself"
_MAX_BUILD_SECONDS = 1.0
"""A set that takes longer to build is not built again to measure the training process without workers."""
_WAITING = 0.01
"""Cores that a batch is assumed to keep busy: whether more workers gain anything is measured."""


def tune_workers(run: MeasuredRun, budget: Budget, report: Callable[[str], None]) -> TargetFinding:
    """Finds the number of loader workers: it is doubled while that gains, then refined.

    The limits are those of ``num_workers: auto``: cores within the quotas of the control groups, a fourth of
    the free memory, the batches of a pass. Batches travel in unnamed files in memory, so the size of /dev/shm
    is no limit.
    """
    loader = run.loader()
    present = loader.num_workers or 0
    finding = TargetFinding(
        target="workers",
        setting=WORKERS,
        present=present,
        chosen=present,
        reason="",
        is_neutral=isinstance(loader, Loader),
    )
    if isinstance(loader, ExternalLoader):
        finding.reason = _EXTERNAL
        return finding
    most, why = most_workers(run, loader, run.settings.data.prefetch)
    if not most:
        finding.reason = f"no loader worker can be used: {why}"
        return finding
    rounds = CandidateRounds(
        lambda value, seconds: run.block(run.loader(num_workers=value), seconds),
        present,
        budget=budget,
        num_candidates=6,
        least_seconds=4 * run.step_seconds,
        report=report,
    )
    here = [0] if run.is_in_memory or run.build_seconds < _MAX_BUILD_SECONDS else []
    rounds.ascend([*here, *_doubling(most)])
    rounds.add(_refinements(rounds, most))
    rounds.repeat()
    rounds.fill(finding)
    if finding.chosen == most and len(finding.candidates) > 1:
        finding.reason += f"; more are not used: {why}"
    if finding.chosen != present:
        finding.changes = {WORKERS: finding.chosen}
        if not finding.is_neutral:
            finding.consequences = [
                "the set has no indices: the number of workers decides on the order of its samples"
            ]
    return finding


def tune_prefetch(run: MeasuredRun, budget: Budget, report: Callable[[str], None]) -> TargetFinding:
    """Finds the number of batches that each worker fetches in advance. Batches of at most 1 MiB are fetched
    further ahead in any case, see `WorkerPool`."""
    present = run.settings.data.prefetch
    finding = TargetFinding(
        target="prefetch", setting=PREFETCH, present=present, chosen=present, reason="", is_neutral=True
    )
    loader = run.loader()
    num_workers = loader.num_workers or 0
    if isinstance(loader, ExternalLoader):
        finding.reason = _EXTERNAL
    elif not num_workers:
        finding.reason = "without loader workers nothing is fetched in advance"
    elif run.batch_bytes <= SMALL_BYTES:
        finding.reason = (
            f"a batch has {format_bytes(run.batch_bytes)}: below {format_bytes(SMALL_BYTES)} more of them "
            "are fetched in advance in any case"
        )
    if finding.reason:
        return finding
    rounds = CandidateRounds(
        lambda value, seconds: run.block(run.loader(prefetch=value), seconds),
        present,
        budget=budget,
        num_candidates=len(_PREFETCHES),
        least_seconds=4 * run.step_seconds,
        report=report,
    )
    fits = [value for value in _PREFETCHES if num_workers <= most_workers(run, loader, value)[0]]
    rounds.ascend(fits)
    rounds.repeat()
    rounds.fill(finding)
    if finding.chosen != present:
        finding.changes = {PREFETCH: finding.chosen}
    return finding


def most_workers(run: MeasuredRun, loader: Batches, prefetch: int) -> tuple[int, str]:
    """Returns the most loader workers that the machine has cores and memory for, and the reason."""
    return worker_count.max_workers(
        worker_count.local_budget(training_threads=0),
        BatchCost(busy_cores=_WAITING, num_bytes=run.batch_bytes),
        len(loader),
        prefetch,
    )


def _doubling(most: int) -> list[int]:
    """Returns 1, 2, 4, …, ``most``."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def _refinements(rounds: CandidateRounds, most: int) -> list[int]:
    """Returns numbers between the fastest one so far and its neighbours."""
    best = max(rounds.candidates.values(), key=lambda one: one.median, default=None)
    number = int(best.value) if best is not None else 0
    near = [number * 3 // 4, number * 3 // 2] if number >= 4 else []
    return [one for one in near if one <= most and one not in rounds.candidates]
