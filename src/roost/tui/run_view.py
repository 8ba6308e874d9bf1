"""Fills the run's pane: what is pushed at once, what must be fetched when the selection stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from textual.strip import Strip

from roost.base.errors import NotFound, RoostError
from roost.tui.connection import LabLink
from roost.tui.drawing.styled_text import escape
from roost.tui.panes.run_pane import RunPane
from roost.tui.run_tabs import curves_tab, pictures_tab, run_data, settings_tab, system_tab, why_tab
from roost.tui.run_tabs.run_data import Curve, PictureFile
from roost.tui.view_state import ViewState, label

if TYPE_CHECKING:
    from roost.api.client import AsyncClient
    from roost.operations.live_lab.lab_state import LabState, LabTask

_REFETCH_SECONDS = 2.0
"""Curves, measurements and pictures of a run that goes on are fetched so often at most, and only after the
stream said that there is something new."""
_MOST_CURVES = 64
"""Tasks whose fetched curves are kept."""


class RunView:
    """What the run's pane shows.

    Args:
        pane: The pane.
        view: The choices: task, marks, tab, metrics, rank.
        link: Says when the server is there again.
        is_unicode: Whether braille and blocks can be shown.

    Attributes:
        client: For what is not pushed; None: nothing is fetched.
        lab: The lab; None: not received.
        picture: The picture that is shown.
    """

    def __init__(self, pane: RunPane, view: ViewState, link: LabLink, *, is_unicode: bool) -> None:
        self._pane, self._view, self._link, self._is_unicode = pane, view, link, is_unicode
        self.client: AsyncClient | None = None
        self.lab: LabState | None = None
        self.picture: bytes | None = None
        self._curves: dict[str, dict[str, Curve]] = {}
        self._is_stale = True
        self._fetched = 0.0
        self._shown: tuple[object, ...] = ()
        self._pictures: list[PictureFile] = []
        self._picture_number = 0
        self._fixed: list[Strip] | None = None
        """The lines of a tab that was fetched."""
        self._fetched_for: tuple[object, ...] = ()
        self._redraw: Callable[[], None] | None = None

    # --- what is shown

    def tasks(self) -> list[LabTask]:
        """Returns the tasks that are shown: the marked ones where curves or settings are compared, otherwise
        the selected one."""
        view, found = self._view, list["LabTask"]()
        if self.lab is not None and view.tab in ("compare", "curves") and len(view.marks) > 1:
            found = view.marked_tasks(self.lab)
        return found or ([view.task] if view.task is not None else [])

    def selection_changed(self) -> None:
        """Names the selected run at once; the rest follows when the selection stays."""
        task = self._view.task
        if task is None:
            title = "Run"
        else:
            title = f"F6 {label(task)} · {escape(task.row.name)} · {task.row.state}"
        if self._pane.border_title != title:
            self._pane.border_title = title

    def metrics_arrived(self, ids: Collection[str]) -> None:
        """Notes that tasks have new values."""
        if any(task.id in ids for task in self.tasks()):
            self._is_stale = True

    def reconnected(self) -> None:
        """Fetches again after a lost connection."""
        self._is_stale = True
        if self._view.tab != "log":  # its stream goes on by itself
            self.restart()

    def restart(self) -> None:
        """Shows the tab for the selected task from its beginning."""
        self.selection_changed()
        self._fixed, self._redraw, self._fetched = None, None, 0.0
        self._is_stale = True
        self._shown = ()
        app = self._pane.app
        task = self._view.task
        if self._view.tab == "log":
            self._pane.clear()
            if task is not None and self.client is not None:
                self._work(self._follow_log(task))
        else:
            app.workers.cancel_group(self._pane, "run")
            self.paint(force=True)

    def paint(self, *, force: bool = False) -> None:
        """Draws the tab if it has changed; fetches what is stale."""
        if not self._pane.display or self._pane.size.width <= 0:
            return
        tab, tasks = self._view.tab, self.tasks()
        self.selection_changed()
        if tab == "log":
            if not tasks:
                self._pane.set_empty_text("no task is selected")
            return
        if not tasks:
            self._pane.show_lines([], "no task is selected")
            return
        if force or self._is_stale:
            self._draw(tasks)
        now = time.monotonic()
        if self._is_stale and self.client is not None and now - self._fetched >= _REFETCH_SECONDS:
            self._fetched, self._is_stale = now, False
            self._work(self._fetch(tasks))

    def _draw(self, tasks: list[LabTask]) -> None:
        tab, pane = self._view.tab, self._pane
        width, height = pane.size.width, pane.size.height - 1
        colours = pane.palette
        if tab in ("curves", "compare"):
            found = curves_tab.panels(tasks, self._view, self._curves)
            shown_height = height if tab == "curves" else max(10, height // 2)
            drawn = curves_tab.lines(
                found, width, shown_height, colours, unicode=self._is_unicode,
                logarithmic=self._view.is_logarithmic,
            )  # fmt: skip
            if tab == "compare":
                drawn += settings_tab.lines(tasks, width, colours)
            pane.show_lines(drawn, "no metrics were recorded yet")
        elif tab == "settings":
            pane.show_lines(settings_tab.lines(tasks, width, colours), "no settings are known")
        elif self._redraw is not None:
            self._redraw()
        else:
            pane.show_lines([], "")

    # --- fetching

    def _work(self, body: Coroutine[Any, Any, None]) -> None:
        self._pane.run_worker(body, group="run", exclusive=True)

    async def _fetch(self, tasks: list[LabTask]) -> None:
        tab, client = self._view.tab, self.client
        assert client is not None
        try:
            if tab in ("curves", "compare"):
                await self._fetch_curves(client, tasks)
            elif tab == "system":
                await self._fetch_system(client, tasks[0])
            elif tab == "pictures":
                await self._fetch_pictures(client, tasks[0])
            elif tab == "why":
                found = await run_data.read_why(client, tasks[0])
                self._show(lambda: why_tab.lines(found, self._pane.size.width, self._pane.palette), "")
        except NotFound as error:
            self._show(list, escape(str(error)))
        except RoostError as error:
            self._is_stale = True
            self._show(list, escape(str(error)))

    async def _fetch_curves(self, client: AsyncClient, tasks: list[LabTask]) -> None:
        names = curves_tab.metric_names(tasks, self._view)
        for task in tasks:
            try:
                found = await run_data.read_curves(client, task, names, 2 * self._pane.size.width)
            except NotFound:  # a task without records
                continue
            self._curves.pop(task.id, None)
            self._curves[task.id] = found
        for id in list(self._curves)[:-_MOST_CURVES]:
            del self._curves[id]
        self._draw(tasks)

    async def _fetch_system(self, client: AsyncClient, task: LabTask) -> None:
        found = await run_data.read_system(client, task)
        message = "" if found is not None else "nothing was measured: a session of a second is too short"
        self._show(lambda: system_tab.lines(found, self._pane.size.width, self._pane.palette), message)

    async def _fetch_pictures(self, client: AsyncClient, task: LabTask) -> None:
        self._pictures = await run_data.list_pictures(client, task)
        if not self._pictures:
            self.picture = None
            self._show(list, "the run has saved no pictures")
            return
        self._picture_number %= len(self._pictures)
        one = self._pictures[self._picture_number]
        data = self.picture = await client.read_file(run_data.run_id(task), one.path)
        place = (self._picture_number + 1, len(self._pictures))
        self._show(
            lambda: pictures_tab.lines(
                data, one.path, place, self._pane.size.width, self._pane.size.height - 1, self._pane.palette,
                unicode=self._is_unicode,
            ), "",
        )  # fmt: skip

    def next_picture(self, places: int) -> None:
        """Shows another picture."""
        self._picture_number += places
        self._is_stale, self._fetched = True, 0.0
        self.paint()

    def _show(self, draw: Callable[[], list[Strip]], message: str) -> None:
        """Draws fetched lines, now and whenever the size changes."""
        self._redraw = lambda: self._pane.show_lines(draw(), message)
        self._redraw()

    async def _follow_log(self, task: LabTask) -> None:
        client = self.client
        assert client is not None
        rank = self._view.rank
        self._pane.set_empty_text("nothing was printed yet")
        cursor: str | None = None
        while True:
            try:
                if cursor is None:
                    cursor = await run_data.log_start(client, task, rank)
                async for event in run_data.follow_log(client, task, rank, cursor):
                    cursor = event.cursor
                    self._pane.write(event.data.text)
                return
            except RoostError as error:
                if not await self._link.may_retry(error):
                    self._pane.set_empty_text(escape(str(error)))
                    return
