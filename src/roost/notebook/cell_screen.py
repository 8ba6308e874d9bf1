"""The screen of a followed run in the cell of a notebook: one output that is replaced again and again, so
that the notebook does not grow, however long the run."""

from __future__ import annotations

import html
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import click

from roost.base.errors import RoostError
from roost.cli.progress_bar import Eta, NewestMetrics, format_progress, part_done
from roost.display import terminal
from roost.notebook.curve_chart import chart_image
from roost.operations.curves.history_cache import records_files
from roost.operations.plots.plot_panels import build_picture
from roost.operations.sessions.running_session import RunningSession
from roost.package.kinds import TaskKind
from roost.package.live_progress import ProgressReader, ProgressRecord
from roost.package.package import PackageFolder

Publish = Callable[[Mapping[str, str]], None]
"""Replaces the output of the cell, given as texts by media type."""

_LEAST_SECONDS, _MOST_SECONDS, _AGE_SHARE = 1.0, 10.0, 1000.0
"""The time between two updates: a thousandth of the time that the view exists. Jupyter's server keeps the
updates for a page that is closed."""
_CHART_UPDATES, _CHART_SHARE = 3.0, 20.0
"""The curves are read again after three updates, and after twenty times the time that reading them took."""
_MAX_LINES, _MAX_CHARACTERS = 20, 160
_MAX_METRICS = 24
_MAX_PIECE_BYTES = 1 << 16
"""Of a larger piece of output only the end is looked at."""
_BAR_CHARACTERS = 30
_TEXT = "margin: 0.3em 0; font-size: 0.9em; white-space: pre-wrap; word-break: normal; "
_QUIET = "color: #888"


class CellScreen:
    """Shows the position of a run, its newest metrics, curves, and the last lines of its output.

    Args:
        running: The session.
        publish: Shows the view.
        clock: The monotonic time.
    """

    def __init__(
        self, running: RunningSession, publish: Publish, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        session = running.session()
        self._folder = running.output.parent
        self._has_curves = not running.only_reads
        self._unit = "cell" if TaskKind.of(session.request) is TaskKind.EVALUATE else "step"
        self._title = f"{terminal.escape_name(terminal.format_path(self._folder))}, session {running.number}"
        self._began = session.recorded.started or time.time()
        self._progress = ProgressReader(self._folder / "progress")
        self._newest = NewestMetrics(self._folder / "records" / f"{running.number}.jsonl")
        self._eta = Eta()
        self._output = _LastLines()
        self._status: deque[str] = deque(maxlen=3)
        self._publish, self._clock = publish, clock
        self._since = clock()
        self._next_update = self._next_chart = self._since
        self._chart, self._charted = "", -1
        self._is_closed = False

    def write(self, output: bytes) -> None:
        self._output.add(output)
        self.tick()

    def print_status(self, text: str) -> None:
        self._status.append(terminal.escape_text(text))
        self._next_update = self._clock()
        self.tick()

    def tick(self) -> None:
        """Replaces the view if that is due."""
        now = self._clock()
        if now >= self._next_update:
            interval = min(max((now - self._since) / _AGE_SHARE, _LEAST_SECONDS), _MOST_SECONDS)
            self._next_update = now + interval
            if now >= self._next_chart:
                self._draw_chart(interval)
            self._show(now)

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    def close(self) -> None:
        """Shows the last state, which stays in the notebook."""
        if not self._is_closed:
            self._is_closed = True
            self._status.clear()  # what was about to happen, such as a save, has happened
            self._output.add(b"", final=True)
            self._draw_chart(0.0)
            self._show(self._clock())

    def _draw_chart(self, interval: float) -> None:
        """Draws the curves again, if there are new rows."""
        before = self._clock()
        try:
            size = sum(path.stat().st_size for path in records_files(self._folder / "records"))
            if self._has_curves and size != self._charted:
                self._chart = chart_image(build_picture([PackageFolder.open(self._folder)]))
                self._charted = size
        except (RoostError, OSError):
            pass  # too many metrics for one picture, or the package is gone: the rest is still shown
        now = self._clock()
        self._next_chart = now + max(_CHART_UPDATES * interval, _CHART_SHARE * (now - before))

    def _show(self, now: float) -> None:
        progress = self._progress.read()
        metrics = self._newest.parts()
        if more := len(metrics) - _MAX_METRICS:
            metrics[_MAX_METRICS:] = [f"… {more} more"] * (more > 0)
        position = self._position(progress, now)
        newest = [terminal.escape_name(one)[:_MAX_CHARACTERS] for one in metrics]
        head = "\n".join(filter(None, [self._title, _unbroken(position), _unbroken(newest), *self._status]))
        output = "\n".join(self._output.lines())
        self._publish(
            {
                "text/html": f"{_pre(head)}{self._chart}{_pre(output, _QUIET)}",
                "text/plain": f"{self._title}: {'  '.join(position)}",
            }
        )

    def _position(self, progress: ProgressRecord | None, now: float) -> list[str]:
        if progress is None or progress.wall < self._began:
            # The progress record of the session before stays until this one has loaded its state.
            return ["ended" if self._is_closed else f"starting  {max(0.0, time.time() - self._began):.0f} s"]
        part, share = part_done(progress)
        left = self._eta.seconds(now, progress.fraction)
        parts = [format_progress(progress, self._unit)]
        if share:
            full = round(part * _BAR_CHARACTERS)
            parts.append(f"{'█' * full}{'░' * (_BAR_CHARACTERS - full)} {share.strip()}")
        if not self._is_closed and progress.phase != "ended":
            parts += [progress.phase] * (progress.phase != "training")
            if progress.samples_per_second:
                parts.append(f"{progress.samples_per_second:,.0f} samples/s")
            if left is not None:
                parts.append(f"ETA {terminal.format_duration(left)}")
        return parts


class _LastLines:
    """The last lines of a run's output; of a line that rewrites itself with ``\\r``, its last state."""

    def __init__(self) -> None:
        self._decode = terminal.OutputDecoder()
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._line = ""

    def add(self, output: bytes, *, final: bool = False) -> None:
        text = click.unstyle(self._decode(output[-_MAX_PIECE_BYTES:], final=final))
        *lines, rest = (self._line + text).split("\n")
        self._lines.extend(map(_last_state, lines))
        self._line = _last_state(rest) if len(rest) > _MAX_PIECE_BYTES else rest

    def lines(self) -> list[str]:
        """Returns the lines, the incomplete one included."""
        return [*self._lines, _last_state(self._line)][-_MAX_LINES:]


def _last_state(line: str) -> str:
    shown = line.rstrip("\r").rpartition("\r")[2]
    return shown if len(shown) <= _MAX_CHARACTERS else f"{shown[:_MAX_CHARACTERS]}…"


def _unbroken(parts: Iterable[str]) -> str:
    """Puts short texts into a line that the page breaks only between them."""
    return "  ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def _pre(text: str, style: str = "") -> str:
    return f'<pre style="{_TEXT}{style}">{html.escape(text)}</pre>' if text.strip() else ""
