"""`roost client`: the lab on the whole screen.

From 110 columns on, if they are at least twice the rows (120x40)::

    ┌ status: lab, connection, counts ───────────────────────────────────────┐
    │ F4 Tasks                          │ F5 Devices                         │
    │   running, queue, ended           │   memory by task, use, host        │
    │                                   │ Run: Curves Log System Pictures …  │
    │                                   │                                    │
    │ F2 Server output                  │ F3 Analyzer output                 │
    └ F1 ❯ command line ─────────────────────────────────────── keys ────────┘

Stacked from 44 rows on: tasks and server output above, devices, run and analyzer output below. Otherwise
(80x24) one view at a time below the status; tasks and devices together. `z` shows a view alone.

The app holds no state of the lab: `LabState` and `ViewState` do, and panes draw from them. Changes arrive by
one stream (`connection`), and are drawn at most ten times in a second, the changed lines only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.events import Event, Key, Paste, Resize
from textual.geometry import Size
from textual.theme import Theme
from textual.timer import Timer
from textual.widgets import Label

from roost.base.errors import RoostError
from roost.tui import key_table, layout
from roost.tui.connection import LabLink
from roost.tui.drawing.ascii_filter import AsciiFilter
from roost.tui.drawing.palette import PALETTES, PLAIN, Palette
from roost.tui.drawing.styled_text import escape
from roost.tui.panes.devices_pane import DevicesPane
from roost.tui.panes.line_view import LineView
from roost.tui.panes.output_pane import OutputPane
from roost.tui.panes.run_pane import RunPane
from roost.tui.panes.status_line import StatusLine
from roost.tui.panes.tasks_pane import TasksPane
from roost.tui.panes.verb_line import CommandLine, CompletionWord
from roost.tui.run_tabs import run_data
from roost.tui.run_view import RunView
from roost.tui.terminal_driver import TerminalDriver
from roost.tui.verb_thread import VerbListener, VerbThread
from roost.tui.view_state import RunTab, ViewState, is_analyzer, label

if TYPE_CHECKING:
    from roost.api.client import AsyncClient
    from roost.operations.live_lab.lab_change import LabChange
    from roost.operations.live_lab.lab_state import LabState
    from roost.shell.completion import VerbCompletion
    from roost.shell.lab_connection import LabConnection
    from roost.shell.verb_runner import VerbRunner

_PAINT_SECONDS = 0.1
"""Changes that arrive in between are drawn together."""
_TIDY_SECONDS = 5.0
"""How often durations are drawn anew without any change, and the size of the terminal is read."""
_SELECT_SECONDS = 0.12
"""A selection that stays so long is fetched: moving through a list sends no requests."""
_STRUCTURAL = ("TaskRowChange", "TaskRemoval", "SweepChange", "PendingOrder", "LabReset", "TaskFields")
"""Changes after which the list of tasks is made anew; others change its cells only."""
_MAX_JOURNAL = 1000
_KEY_ACTIONS = frozenset(str(one.action).partition("(")[0] for one in key_table.bindings())
_ORDER = ("command", "tasks", "devices", "run", "server", "analyzer")


class RoostClient(App[int]):
    """The full-screen client.

    Args:
        url: The server; None: that of this user.
        connect: Returns the connection for verbs.
        colours: The palette.
        place: Which lab, for the status line.
        is_ascii: Whether the terminal shows only ASCII.
        is_read_only: Whether nothing can be changed.
    """

    CSS = layout.CSS
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = [*key_table.bindings()]
    INHERIT_BINDINGS = False

    def __init__(
        self,
        url: str | None,
        connect: Callable[[], LabConnection],
        colours: Palette,
        *,
        place: str,
        is_ascii: bool = False,
        is_read_only: bool = False,
        has_link: bool = True,
    ) -> None:
        super().__init__(driver_class=TerminalDriver, ansi_color=True if colours is PLAIN else None)
        self.colours, self.place = colours, place
        self.is_ascii, self.is_read_only = is_ascii, is_read_only
        for one in PALETTES.values():
            self.register_theme(_theme(one))
        self.theme = f"roost-{colours.name}"
        self.animation_level = "none"
        if is_ascii:
            self._filters.append(AsciiFilter())
        self.view = ViewState()
        self.lab: LabState | None = None
        self.link = LabLink(url, self)
        self._has_link = has_link
        self.verbs = VerbThread(
            connect,
            VerbListener(
                lambda text: self._from_thread(self._wrote, text),
                lambda text: self._from_thread(self._failed, text),
                lambda runner: self._from_thread(self._verb_ended, runner),
            ),
            is_read_only=is_read_only,
        )
        self.front, self.is_zoomed = "tasks", False
        self.message = ""
        self._is_structural = self._has_paint = False
        self._painted = 0.0
        self._cards_revision = -1
        self._journal: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.error: RoostError | None = None
        """Why the client ended by itself."""

    # --- composition

    def compose(self) -> ComposeResult:
        """Yields the views."""
        self.status, self.hints = StatusLine("status"), StatusLine("hints")
        self.tasks, self.devices = TasksPane(self.view), DevicesPane()
        self.server = OutputPane(
            "server", "F2 Server output", "what the server was asked for, and what commands print"
        )
        self.analyzer = OutputPane("analyzer", "F3 Analyzer output", _NO_ANALYZER)
        self.run_pane = RunPane(self.view)
        self.command = CommandLine(self)
        self.run_view = RunView(self.run_pane, self.view, self.link, is_unicode=not self.is_ascii)
        self._set_colours()
        yield self.status
        with Container(id="body"):
            with Vertical(id="left"):
                yield self.tasks
                yield self.server
            with Vertical(id="right"):
                yield self.devices
                yield self.run_pane
                yield self.analyzer
        yield self.command
        yield self.hints
        yield Label("", id="small", markup=False)

    def _set_colours(self) -> None:
        for pane in self._panes():
            pane.palette = self.colours
        for line in (self.status, self.hints):
            line.palette = self.colours

    def _panes(self) -> list[LineView]:
        return [self.tasks, self.server, self.devices, self.run_pane, self.analyzer]

    def on_mount(self) -> None:
        """Begins: keys, signals, the stream."""
        self._loop = asyncio.get_running_loop()
        self.app_resume_signal.subscribe(self, lambda _: self.draw_all())
        if self._has_link:
            for number in (signal.SIGTERM, signal.SIGHUP):
                self._loop.add_signal_handler(number, self.exit, 128 + number)
            self.run_worker(self._follow(), group="link")
        self._arrange()
        self.screen.set_focus(self.tasks)
        self._show_status()
        self.set_interval(_TIDY_SECONDS, self._tidy)

    async def _follow(self) -> None:
        try:
            await self.link.run()
        except RoostError as error:
            self.error = error
            self.exit(error.exit_code)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has its action now. In the command line most keys are text; above the views the help
        has its own keys; in an output that is searched `n` goes on."""
        if action not in _KEY_ACTIONS:
            return True
        if len(self.screen_stack) > 1:
            return action in ("leave", "suspend_process")
        if self.focused is self.command.input:
            return action in key_table.WHILE_TYPING and (action != "focus_pane" or self._is_function_key)
        if self.is_read_only and action in key_table.CHANGING:
            return False
        return not (
            action == "ask"
            and parameters == ("note",)
            and (isinstance(self.focused, OutputPane) and self.focused.search)
        )

    async def on_event(self, event: Event) -> None:
        """Notes the key: `check_action` gets the action only. The widget that a key is for has handled it
        before the next one, which may be about what it selected: keys of a slow connection come at once."""
        if not isinstance(event, (Key, Paste)) or event.is_forwarded:
            await super().on_event(event)
            return
        if isinstance(event, Key):
            self._is_function_key = event.key != "colon"
            if self.message and self.focused is not self.command.input:
                self.say("")
        target, handled = self.focused, asyncio.Event()
        await super().on_event(event)
        # Only the help is ever removed; it would not answer.
        is_forwarded = event.is_forwarded and target is not None and len(self.screen_stack) == 1
        if is_forwarded and target.call_later(handled.set):
            await handled.wait()

    _is_function_key = False

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Gives the terminal to another program. Textual's own would not take it back after an error."""
        trouble = None
        with super().suspend():
            try:
                yield
            except Exception as error:  # noqa: BLE001  - raised below
                trouble = error
        if trouble is not None:
            raise trouble

    def draw_all(self) -> None:
        """Draws the whole screen, after another program had the terminal."""
        for widget in self.screen.walk_children(with_self=True):
            widget.refresh()

    # --- what the stream says (LabListener)

    def connected(self, client: AsyncClient, lab: LabState) -> None:
        """Takes the client and the state."""
        self.run_view.client = client
        self.use_lab(lab)

    def use_lab(self, lab: LabState) -> None:
        """Shows a lab."""
        self.lab = lab
        self.run_view.lab = lab

    def received(self, changes: Sequence[LabChange]) -> None:
        """Has changes drawn."""
        kinds = {type(one).__name__ for one in changes}
        self._is_structural |= not kinds.isdisjoint(_STRUCTURAL) or bool(self.view.filter or self.view.sort)
        changed = {one.id for one in changes if type(one).__name__ == "TaskMetrics"}  # type: ignore[union-attr]
        self.run_view.metrics_arrived(changed)
        self._add_journal(changes)
        self.schedule_paint()

    def link_changed(self) -> None:
        """Says that the connection was lost, or is there again."""
        if self.link.state == "live":
            self.run_view.reconnected()
        self._show_status()

    def schedule_paint(self) -> None:
        """Has everything drawn that has changed, soon."""
        if self._has_paint:
            return
        self._has_paint = True
        wait = self._painted + _PAINT_SECONDS - time.monotonic()
        if wait <= 0:
            self.call_next(self._paint)
        else:
            self.set_timer(wait, self._paint)

    def _paint(self) -> None:
        self._has_paint, self._painted = False, time.monotonic()
        if self.lab is None:
            return
        before = self.view.selected
        if self._is_structural or not self.view.entries:
            self.view.refresh(self.lab)
            self._is_structural = False
        self.tasks.show(self.lab)
        if self._cards_revision != self.lab.cards_revision:
            self._cards_revision = self.lab.cards_revision
            lines = self.devices.count()
            self.devices.show(self.lab)
            if lines != self.devices.count():
                self._arrange()
        self._show_status()
        if self.view.selected != before:
            self._selection_changed()
        self.run_view.paint()

    def _add_journal(self, changes: Sequence[LabChange]) -> None:
        """Adds new lines of the journal to the server's output. After a lost connection the whole journal
        comes: lines that are shown already are not shown again."""
        is_whole = False
        for change in changes:
            kind = type(change).__name__
            is_whole |= kind == "LabReset"
            if kind != "JournalLines":
                continue
            lines = list(change.lines)  # type: ignore[union-attr]
            if is_whole and lines[: len(self._journal)] == self._journal:
                new = lines[len(self._journal) :]
            else:
                new = lines
                if change.cleared:  # type: ignore[union-attr]
                    self.server.clear()
            whole = is_whole or change.cleared  # type: ignore[union-attr]
            self._journal = (lines if whole else [*self._journal, *new])[-_MAX_JOURNAL:]
            self.server.write_lines(new)

    def _tidy(self) -> None:
        if self.lab is not None:
            self.tasks.lines_changed()
        self._read_size()

    def _read_size(self) -> None:
        """Takes a size whose signal was missed: a launcher may have blocked SIGWINCH, and a terminal that
        says that it reports sizes itself makes Textual ignore the signal."""
        if self.is_headless:
            return
        with contextlib.suppress(OSError):  # the terminal is gone: SIGHUP follows
            size = Size(*os.get_terminal_size())
            if size != self.size and size.area:
                self.post_message(Resize(size, size))

    # --- status and hints

    def _show_status(self) -> None:
        colours = self.colours
        state = self.link.state
        sign, colour = {"live": ("●", colours.good), "connecting": ("◌", colours.waiting),
                        "lost": ("✗", colours.bad)}[state]  # fmt: skip
        left = [(" roost ", colours.accent, "b"), (f"{escape(self.place)} ", colours.text, "")]
        words = {
            "live": "live",
            "connecting": "connecting",
            "lost": f"reconnecting: {escape(self.link.trouble)}",
        }
        left += [
            (f"{sign} ", colour, ""),
            (f"{words[state]} ", colours.faint if state == "live" else colour, ""),
        ]
        if self.is_read_only:
            left.append((" read only ", colours.waiting, "b"))
        cards: list[tuple[str, str, str]] = []
        right: list[tuple[str, str, str]] = []
        if self.lab is not None and self.lab.is_known:
            if self.lab.summary.trouble:
                left.append((f" {escape(self.lab.summary.trouble)} ", colours.bad, ""))
            elif self.lab.summary.daemon is None and self.lab.summary.counts:
                left.append((" no daemon runs: roost lab start ", colours.bad, "b"))
            for card in self.lab.cards()[:8]:
                use = "–" if card.status.utilization is None else f"{card.status.utilization}%"
                cards += [(f" {card.status.number}:", colours.faint, ""), (f"{use:<5}", colours.busy, "")]
            counts = self.lab.summary.counts
            for name, tint in (("running", colours.busy), ("pending", colours.text), ("failed", colours.bad)):
                if counts.get(name):
                    right += [(f"  {counts[name]:,}", tint, "b"), (f" {name}", colours.faint, "")]
            right.append((" ", "", ""))
        is_wide = sum(cell_len(text) for text, _, _ in (*left, *cards, *right)) < self._terminal_size.width
        self.status.show(left, [*cards, *right] if is_wide else right)
        self._show_hints()

    def _show_hints(self) -> None:
        colours = self.colours
        if self.message:
            self.hints.show([(f" {escape(self.message)}", colours.waiting, "")])
            return
        parts: list[tuple[str, str, str]] = []
        left = self._terminal_size.width
        for key, word in [("F1", "command"), *key_table.hints(is_read_only=self.is_read_only)]:
            left -= len(f" {key} {word} ")
            if left < -1:  # the last blank may be missing
                break
            parts += [(f" {key}", colours.accent, "b"), (f" {word} ", colours.faint, "")]
        self.hints.show(parts)

    def say(self, text: str) -> None:
        """Shows a message in the last line, until the next key."""
        self.message = text
        self._show_hints()

    # --- layout

    def _arrange(self) -> None:
        found = layout.arrange(
            *self._terminal_size,
            front=self.front,
            is_zoomed=self.is_zoomed,
            device_lines=max(3, self.devices.count()),
        )
        for shape in ("small", "compact", "tall", "wide"):
            self.screen.set_class(found.shape == shape, shape)
        if found.shape == "small":
            width, height = self._terminal_size
            needed = f"roost client needs {layout.MIN_COLUMNS}x{layout.MIN_ROWS}."
            text = f"The terminal has {width}x{height};\n{needed}"
            self.query_one("#small", Label).update(text)
            return
        for pane in self._panes():
            pane.display = pane.id in found.visible
        self.query_one("#left").display = bool({"tasks", "server"} & found.visible)
        self.query_one("#right").display = bool({"devices", "run", "analyzer"} & found.visible)
        is_pair = found.shape == "compact" and {"tasks", "devices"} <= found.visible
        self.query_one("#right").styles.height = found.devices_rows if is_pair else None
        self.devices.styles.height = found.devices_rows if found.devices_rows and not is_pair else None
        for pane in (self.server, self.analyzer):
            pane.styles.height = found.output_rows or None

    def on_resize(self, event: Resize) -> None:
        """Arranges the views anew."""
        self._terminal_size = event.size
        self._arrange()
        self._show_status()

    _terminal_size = Size(80, 24)

    def on_descendant_focus(self) -> None:
        """Brings the view with the focus to the front."""
        focused = self.focused
        if focused is not None and focused.id in layout.PANES and focused.id != self.front:
            self.front = focused.id or "tasks"
            self._arrange()

    # --- actions: views

    def action_focus_pane(self, name: str) -> None:
        """Gives a view the focus; if it has it, shows it alone, and back."""
        if name == "command":
            self.command.open()
            self._load_history()
            return
        pane = self.query_one(f"#{name}", LineView)
        if self.focused is pane:
            self.action_zoom()
            return
        self.front = name
        self._arrange()
        self.screen.set_focus(pane)

    def action_zoom(self) -> None:
        """Shows the view in front alone, or all views again."""
        self.is_zoomed = not self.is_zoomed
        self._arrange()

    def action_next_pane(self, places: int) -> None:
        """Gives the next view the focus."""
        here = self.focused.id if self.focused is not None and self.focused.id in _ORDER else "command"
        at = (_ORDER.index(here) + places) % len(_ORDER)
        if _ORDER[at] == "command":
            at = (at + places) % len(_ORDER)
        self.front = _ORDER[at]
        self._arrange()
        self._focus_front()

    def action_go_back(self) -> None:
        """Takes back one thing: zoom, search, filter, marks."""
        if self.is_zoomed:
            self.action_zoom()
        elif isinstance(self.focused, OutputPane) and self.focused.search:
            self.focused.find("")
        elif self.view.filter:
            self._set_filter("")
        elif self.view.marks:
            self.view.clear_marks()
            if self.view.tab == "compare":
                self._choose_tab("curves")
            self.tasks.lines_changed()
            self.run_view.restart()
        else:
            self.action_focus_pane("tasks") if self.focused is not self.tasks else None

    def action_help(self) -> None:
        """Shows the keys."""
        from roost.tui.panes.help_screen import HelpScreen

        self.push_screen(HelpScreen(self.colours, is_read_only=self.is_read_only))

    def action_theme(self) -> None:
        """Changes between dark and light."""
        if self.colours is PLAIN:
            return
        self.colours = PALETTES["light" if self.colours.name == "dark" else "dark"]
        self.theme = f"roost-{self.colours.name}"
        self._set_colours()
        for pane in self._panes():
            pane.lines_changed()
        self.draw_all()
        self.run_view.restart()
        self._show_status()

    def action_interrupt(self) -> None:
        """Ctrl-C: empties the command line; elsewhere leaves."""
        if self.focused is self.command.input:
            self.command.reset()
        else:
            self.exit(0)

    async def action_quit(self) -> None:
        """Leaves; everything goes on."""
        self.exit(0)

    def action_leave(self) -> None:
        """Leaves from anywhere."""
        self.exit(0)

    # --- actions: tasks

    def action_filter(self) -> None:
        """Asks for a filter; with the focus on an output, for a search."""
        if isinstance(self.focused, OutputPane) and (
            self.focused is not self.run_pane or self.run_pane.is_log
        ):
            self._searched = self.focused
            self.command.ask("search", "search", self.focused.search)
        else:
            self.command.ask("filter", "filter", self.view.filter)

    def _set_filter(self, text: str) -> None:
        self.view.filter = text.strip()
        if self.lab is not None:
            self.view.refresh(self.lab)
            self.tasks.show(self.lab)
            self._selection_changed()

    def action_sort(self) -> None:
        """Goes on to the next order."""
        order = self.view.next_sort()
        if self.lab is not None:
            self.view.refresh(self.lab)
            self.tasks.show(self.lab)
        self.say(f"order: {order or 'running, queue, ended'}")

    def action_open(self) -> None:
        """Opens what is selected."""
        entry = self.view.entry
        if entry is None:
            return
        if entry.sweep is not None:
            self.action_fold()
        elif entry.task is not None and is_analyzer(entry.task):
            self.run_verb(f"watch {label(entry.task)}")
        else:
            self.action_focus_pane("run")

    def action_fold(self) -> None:
        """Lists the tasks of a sweep, or folds them."""
        if self.view.toggle_fold() and self.lab is not None:
            self.view.refresh(self.lab)
            self.tasks.show(self.lab)
            self._selection_changed()

    def action_mark(self) -> None:
        """Marks what is selected."""
        if note := self.view.toggle_mark():
            self.say(note)
        self.view.move(1)
        self.tasks.lines_changed()
        self._selection_changed()

    def action_compare(self) -> None:
        """Compares what is marked."""
        if len(self.view.marks) < 2:
            self.say("mark two or more tasks with Space")
            return
        self.action_tab("compare")

    def on_tasks_pane_selected(self) -> None:
        """Shows the selected run."""
        self._selection_changed()

    def on_tasks_pane_opened(self) -> None:
        """Opens the selected line."""
        self.action_open()

    def on_devices_pane_card_clicked(self, event: DevicesPane.CardClicked) -> None:
        """Lists the tasks of a card."""
        if self.lab is not None:
            cards = [card.id for card in self.lab.cards() if card.status.number == event.number]
            self._set_filter(f"cards={cards[0]}" if cards else "")

    def _selection_changed(self) -> None:
        self.view.rank = 0
        self.run_view.selection_changed()
        if self._selection_timer is not None:
            self._selection_timer.stop()
        self._selection_timer = self.set_timer(_SELECT_SECONDS, self.run_view.restart)

    _selection_timer: Timer | None = None

    # --- actions: the run

    def _choose_tab(self, tab: RunTab) -> None:
        self.view.tab = tab
        self.run_pane.tab_begins()
        self.run_view.restart()

    def action_tab(self, tab: RunTab) -> None:
        """Shows a tab of the run; on a small screen in front."""
        self._choose_tab(tab)
        if not self.run_pane.display:
            self.front = "run"
            self._arrange()
        self.screen.set_focus(self.run_pane)

    def action_next_tab(self, places: int) -> None:
        """Goes on to the next tab."""
        tabs = self.run_pane.tabs()
        at = tabs.index(self.view.tab) if self.view.tab in tabs else 0
        self._choose_tab(tabs[(at + places) % len(tabs)])

    def on_run_pane_tab_chosen(self, event: RunPane.TabChosen) -> None:
        """Shows the tab that was clicked."""
        self._choose_tab(event.tab)

    def on_run_pane_resized(self) -> None:
        """Draws for the new size."""
        self.run_view.paint(force=True)

    def action_metrics(self) -> None:
        """Asks which metrics are shown."""
        task = self.view.task
        names = "" if task is None else " ".join(self.view.shown_metrics(task, 12))
        self.command.ask("metrics", "metrics", names)
        if task is not None:
            self.say("of " + ", ".join(task.metric_names()[:30]) + "; * is any characters")

    def action_logarithmic(self) -> None:
        """Changes the axis."""
        self.view.is_logarithmic = not self.view.is_logarithmic
        self.run_view.paint(force=True)

    def action_rank(self, places: int) -> None:
        """Shows the log of another rank."""
        self.view.rank = max(0, self.view.rank + places)
        self._choose_tab("log")

    def action_picture(self, places: int) -> None:
        """Shows another picture."""
        if self.view.tab != "pictures":
            self.action_tab("pictures")
            return
        self.run_view.next_picture(places)

    async def action_sixel(self) -> None:
        """Shows the picture in full, until a key is pressed."""
        from roost.tui.drawing import pictures

        if not pictures.can_show_sixel():
            self.say("this terminal is not known to show sixel; ROOST_SIXEL=1 says that it does")
            return
        data = self.run_view.picture
        if data is None:
            self.say("no picture is shown: open the tab Pictures")
            return
        width, height = self.size.width * 10, (self.size.height - 2) * 20
        drawn = await asyncio.to_thread(pictures.sixel, data, width, height)
        with self.suspend():
            print("\x1b[2J\x1b[H" + drawn, flush=True)
            with contextlib.suppress(EOFError):
                input("Enter goes back")
        self.draw_all()

    # --- actions: changes

    def run_verb(self, line: str) -> None:
        """Carries out a command line, and shows it with its output. `logs` of a task opens its log, which
        follows it."""
        words = line.split()
        if words[:1] == ["logs"] and len(words) > 1 and "-n" not in words and self._open_log(words[1]):
            return
        self.server.write_lines([f"\x1b[1m❯ {escape(line)}\x1b[0m"])
        frame = self.server.gutter.width  # of border and padding; it has no size while it is hidden
        width = self.server.size.width or self._terminal_size.width - frame
        self.verbs.run(line, max(40, width))

    def _open_log(self, name: str) -> bool:
        """Opens the log of a task; returns whether there is one of this name."""
        found = self.lab.find(name) if self.lab is not None else []
        if not found:
            return False
        if self.view.filter and not any(entry.id == found[0].id for entry in self.view.entries):
            self._set_filter("")
        if not self.view.select(found[0].id):
            return False
        self.tasks.lines_changed()
        self._selection_changed()
        self.action_tab("log")
        return True

    def action_verb(self, verb: str) -> None:
        """Carries out a verb on the selected task."""
        if verb == "interrupt":
            self.run_verb("interrupt")
        elif names := self.view.target_names():
            self.run_verb(f"{verb} {names[0]}")

    def action_ask(self, verb: str) -> None:
        """Asks for the value of a verb about the selected task."""
        if names := self.view.target_names():
            self._about = names[0]
            self.command.ask(verb, f"{verb} {names[0]}")

    def action_confirm(self, verb: str) -> None:
        """Asks whether the selected task is to be ended."""
        if names := self.view.target_names():
            self._about = names[0]
            what = {"del": "save and stop", "kill": "kill without saving:"}[verb]
            entry = self.view.entry
            name = ""
            if entry is not None:
                name = (
                    entry.sweep.sweep.name
                    if entry.sweep is not None
                    else entry.task.row.name
                    if entry.task
                    else ""
                )
            self.command.ask(f"confirm {verb}", escape(f"{what} {names[0]} {name}? y or n"))

    _about = ""
    _searched: OutputPane | None = None

    def action_edit(self) -> None:
        """Edits the note of the selected run, or the last script of the watched analyzer, in $EDITOR."""
        from roost.tui import editor

        editor.edit(self)

    # --- the command line

    def line_entered(self, purpose: str, text: str) -> None:
        """Carries out what was entered."""
        if purpose == "verb":
            if text.strip():
                self.run_verb(text)
            return
        self._focus_front()
        if purpose == "filter":
            self._set_filter(text)
            if self.view.filter_error:
                self.say(self.view.filter_error)
            elif (
                self.lab is not None
                and self.view.filter
                and (notes := self.lab.filter_notes(self.view.filter))
            ):
                self.say(notes[0])
        elif purpose == "search":
            if self._searched is not None and not self._searched.find(text):
                self.say(f"no line has {text!r}")
        elif purpose == "metrics":
            self._choose_metrics(text)
        elif purpose.startswith("confirm "):
            if text.strip().lower() in ("y", "yes"):
                self.run_verb(f"{purpose.partition(' ')[2]} {self._about}")
        elif purpose == "note":
            from roost.shell.command_words import quote_word

            self.run_verb(f"note {self._about} {quote_word(text) if text else chr(34) * 2}")
        elif text.strip():
            self.run_verb(f"{purpose} {self._about} {text.strip()}")

    def line_changed(self, purpose: str, text: str) -> None:
        """Filters while a filter is typed; a confirmation needs no Enter."""
        if purpose == "filter":
            self._set_filter(text)
        elif purpose.startswith("confirm ") and text.strip():
            self.command.reset()
            self.line_entered(purpose, text)

    def line_left(self, purpose: str) -> None:
        """Goes back to the view in front."""
        if purpose == "filter":
            self._set_filter("")
        self.say("")
        self._focus_front()

    def show_candidates(self, words: Sequence[str]) -> None:
        """Shows completions in the last line."""
        self.say("  ".join(words[:40]))

    def _focus_front(self) -> None:
        self.screen.set_focus(self.query_one(f"#{self.front}"))

    def _choose_metrics(self, text: str) -> None:
        from fnmatch import fnmatchcase

        task = self.view.task
        if task is None:
            return
        patterns = text.split()
        found = [
            name for pattern in patterns for name in task.metric_names()
            if fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("/")[2], pattern)
        ]  # fmt: skip
        if patterns and not found:
            self.say(f"no metric is named {text}")
            return
        self.view.metrics = list(dict.fromkeys(found))
        self._choose_tab("curves")

    def _load_history(self) -> None:
        """Reads the lines of former clients and shells, once, and completes from now on."""
        if self._has_history or not self._has_link:
            return
        self._has_history = True
        self.command.request_words = self._request_words

        def load(connection: LabConnection) -> None:
            from roost.shell.completion import VerbCompletion
            from roost.shell.shell_history import ShellHistory, history_path

            self._completion = VerbCompletion(connection, lambda: self.view.watched)
            history = ShellHistory(history_path())
            self.command.remember = history.store_string
            lines = list(history.load_history_strings())[::-1]
            self._from_thread(self.command.add_history, lines)

        self.verbs.call(load)

    def _request_words(self, line: str) -> None:
        def complete(connection: LabConnection) -> None:
            if self._completion is None:
                return
            found = self._completion.complete(line)
            words = [CompletionWord(one.start, one.text, one.shown) for one in found]
            self._from_thread(self.command.offer, line, words)

        self.verbs.call(complete)

    _has_history = False
    _completion: VerbCompletion | None = None

    # --- what the thread of verbs says

    def _from_thread(self, body: Callable[..., None], *values: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call, body, values)

    def _call(self, body: Callable[..., None], values: tuple[object, ...]) -> None:
        if self.is_running:
            body(*values)

    def _wrote(self, text: str) -> None:
        self.server.write(text)

    def _failed(self, text: str) -> None:
        self.server.write_lines([f"\x1b[31merror:\x1b[0m {escape(text)}"])
        if not self.server.display:
            self.say(text)

    def _verb_ended(self, runner: VerbRunner) -> None:
        if runner.wants_exit:
            self.exit(0)
            return
        if runner.watched != self.view.watched:
            self.view.watched = runner.watched
            self.tasks.lines_changed()
            self._watch()

    def _watch(self) -> None:
        watched = self.view.watched
        self.analyzer.clear()
        self.analyzer.border_title = "F3 Analyzer output" + (f" · {escape(watched)}" if watched else "")
        self.analyzer.set_empty_text("nothing was printed yet" if watched else _NO_ANALYZER)
        if watched is None:
            self.workers.cancel_group(self, "analyzer")
        else:
            self.run_worker(self._follow_analyzer(watched), group="analyzer", exclusive=True)

    async def _follow_analyzer(self, watched: str) -> None:
        client, cursor = self.run_view.client, None
        assert client is not None
        while True:
            try:
                if cursor is None:
                    cursor = await run_data.output_start(client, watched)
                async for event in client.follow_output(watched, cursor=cursor):
                    cursor = event.cursor
                    self.analyzer.write(event.data.text)
                self.analyzer.write_lines([f"\x1b[2m{watched} has ended\x1b[0m"])
                return
            except RoostError as error:
                if not await self.link.may_retry(error):
                    self.analyzer.write_lines([f"\x1b[31m{escape(str(error))}\x1b[0m"])
                    return


_NO_ANALYZER = "no analyzer is watched:  watch A_1"


def _theme(colours: Palette) -> Theme:
    if colours is PLAIN:
        plain = "ansi_default"
        return Theme(
            "roost-plain", primary=plain, secondary=plain, accent=plain, warning=plain, error=plain,
            success=plain,
            foreground=plain, background=plain, surface=plain, panel=plain, boost=plain, ansi=True,
            variables={"pane-line": plain, "faint": plain, "ansi-background": plain, "ansi-foreground": plain,
                       "border-blurred": plain, "input-selection-background": plain,
                       "input-selection-foreground": plain, "screen-selection-background": plain,
                       "screen-selection-foreground": plain, "block-cursor-foreground": plain,
                       "block-cursor-background": plain, "input-cursor-background": plain,
                       "input-cursor-foreground": plain, "input-cursor-text-style": "reverse"},
        )  # fmt: skip
    return Theme(
        f"roost-{colours.name}", primary=colours.accent, secondary=colours.busy, accent=colours.accent,
        warning=colours.waiting, error=colours.bad, success=colours.good, foreground=colours.text,
        background=colours.background, surface=colours.panel, panel=colours.panel,
        dark=colours.name == "dark", variables={"pane-line": colours.line, "faint": colours.faint},
    )  # fmt: skip
