"""The packages of a sweep, several at a time: most of what one takes is waiting for the disk."""

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
    """Makes them. Whoever takes fewer than all of them is left with those alone that were taken.

    Args:
        plans: What each is made of, of one project, and its name. That of a single one is refused if it is
            taken; those of several get suffixes.
        command: As it was typed.
        report: Hears how far it is.

    Yields:
        Each, in their order.

    Raises:
        Refused: The name is taken.
        OSError: One cannot be written.
    """
    (plan, name), *others = plans
    first = plan.create(name, exactly=name is not None and not others, command=command)
    yield first
    if not others:
        return
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        making = [pool.submit(plan.create, name, command=command, like=first) for plan, name in others]
        taken = 0
        try:
            for number, one in enumerate(making, 2):
                package = one.result()
                report(f"{number} of {len(plans)} packages made")
                taken += 1
                yield package
        finally:
            _remove(making[taken:])


def _remove(making: Sequence[Future[PackageFolder]]) -> None:
    """Ends what is being made; what failed has removed itself."""
    for one in making:
        one.cancel()
    for one in making:
        if not one.cancelled() and one.exception() is None:
            with contextlib.suppress(OSError):  # it stays: nobody runs it
                durable.remove_folder(one.result().path)
