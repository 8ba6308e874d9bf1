"""Drives the client as a person would, on a lab that is generated, without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from roost.operations.live_lab.lab_change import LabChange
from roost.operations.live_lab.lab_state import LabState
from roost.tui.client_app import RoostClient
from roost.tui.drawing import palette

SIZES = ((80, 24), (120, 40), (200, 60))


@asynccontextmanager
async def client_on(
    changes: Sequence[LabChange], size: tuple[int, int] = (120, 40), *, theme: str = "dark", **more: Any
) -> AsyncIterator[Pilot[int]]:
    """A client of a size that shows a lab."""
    app = RoostClient(
        None, more.pop("connect", _no_connection), palette.choose(theme, {}), place="ada@gpu-box",
        has_link=False, **more,
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        lab = LabState()
        lab.apply_all(changes)
        app.link.state = "live"
        app.use_lab(lab)
        app.received(changes)
        await settle(pilot)
        yield pilot


async def settle(pilot: Pilot[int]) -> None:
    """Waits until the client has drawn what it was told, and fetched what it selects."""
    app: Any = pilot.app
    while app._has_paint:
        await pilot.pause(0.01)
    timer = app._selection_timer
    while timer is not None and timer._task is not None and not timer._task.done():
        await pilot.pause(0.01)
    await pilot.pause()


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Presses keys, and waits until they had their effect."""
    await pilot.press(*keys)
    await settle(pilot)


def app_of(pilot: Pilot[int]) -> RoostClient:
    """The client."""
    assert isinstance(pilot.app, RoostClient)
    return pilot.app


def screen_text(pilot: Pilot[int]) -> str:
    """What is on the screen, as lines without blanks at their ends."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def drive(body: Callable[[], Awaitable[None]]) -> None:
    """Runs a test's coroutine."""
    asyncio.run(body())


def _no_connection() -> Any:
    raise AssertionError("this test carries out no verb")
