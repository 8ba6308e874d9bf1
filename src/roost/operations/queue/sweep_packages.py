"""Makes the packages of a sweep with several threads, because most of the time goes into waiting for the
disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from roost.base import durable
from roost.package.package import PackageFolder
from roost.package.package_draft import TrainingDraft

_MAX_THREADS = 8


def create_packages(
    plans: Sequence[tuple[TrainingDraft, str | None]],
    *,
    command: Sequence[str],
    report: Callable[[str], None] = lambda _: None,
) -> Generator[PackageFolder]:
    """Makes the packages of a sweep. If the caller closes the generator early, packages that it has not
    received are removed.

    Args:
        plans: What each package is made of, all of one project, and its name. A single name that is in use is
            refused; names of several get suffixes.
        command: The command line as typed.
        report: Called with a line of progress for each package.

    Yields:
        The packages, in the order of ``plans``.

    Raises:
        Refused: The name is in use.
        OSError: A package cannot be written.
    """
    (plan, name), *others = plans
    first = plan.create(name, exactly=name is not None and not others, command=command)
    yield first
    if not others:
        return
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        making = [pool.submit(plan.create, name, command=command, like=first) for plan, name in others]
        num_taken = 0
        try:
            for number, one in enumerate(making, 2):
                package = one.result()
                report(f"{number} of {len(plans)} packages made")
                num_taken += 1
                yield package
        finally:
            _remove(making[num_taken:])


def _remove(making: Sequence[Future[PackageFolder]]) -> None:
    """Cancels the packages that are being made and removes the finished ones; a failed one has removed
    itself."""
    for one in making:
        one.cancel()
    for one in making:
        if not one.cancelled() and one.exception() is None:
            with contextlib.suppress(OSError):  # the folder remains; no task runs it
                durable.remove_folder(one.result().path)
