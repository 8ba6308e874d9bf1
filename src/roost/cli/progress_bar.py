"""The progress bar of a run that is followed on a terminal, drawn at most ten times a second."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from roost.cli.plain_output import PlainScreen
from roost.display import terminal
from roost.package import live_progress, sessions
from roost.package.live_progress import ProgressRecord
from roost.package.records import SessionFollower, metrics
from roost.package.remote import remote_status

_DRAW_SECONDS = 0.1
_PACE_SECONDS = 30.0
_DEADLINE_SECONDS = 5.0
_DURABILITY_SECONDS = 1.0


class BarScreen:
    """Draws two lines below the output: the position of the run, and its newest metrics. A third one says how
    far the remote copy of the run is, if it has one.

    Args:
        package: The package, or the session folder, that is followed.
        session: The session's number.
        began: The session's start as Unix time; now when None.
        unit: What the counter of the progress record counts.
    """

    def __init__(
        self, package: Path, session: int, *, began: float | None = None, unit: str = "step"
    ) -> None:
        self._unit = unit
        self._progress = package / "progress"
        self._newest = NewestMetrics(package / "records" / f"{session}.jsonl")
        self._began = time.time() if began is None else began
        self._durability = Durability(package)
        self._eta = Eta()
        self._record = package / "sessions" / f"{session}.json"
        self._deadline: float | None = None
        self._deadline_at = -math.inf
        self._drawn = 0.0
        self._decode = terminal.OutputDecoder()
        self._line = ""
        self._plain = PlainScreen()
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self.tick()

    def write(self, output: bytes) -> None:
        """Prints complete lines above the bar; of a line that rewrites itself with ``\\r``, only its last
        state."""
        if not sys.stdout.isatty():
            self._plain.write(output)
            return
        *lines, self._line = (self._line + self._decode(output)).split("\n")
        self._print(lines)

    def _print(self, lines: list[str]) -> None:
        if lines:
            last_drawn = (line.rstrip("\r").rpartition("\r")[2] for line in lines)
            self._console.print(Text.from_ansi("\n".join(last_drawn)), soft_wrap=True)

    def print_status(self, text: str) -> None:
        """Prints a status line above the bar, through rich: written directly it would end up inside the
        bar."""
        self._console.print(Text(text, style="yellow"))

    def tick(self) -> None:
        """Draws the bar if a tenth of a second has passed."""
        now = time.monotonic()
        if now - self._drawn >= _DRAW_SECONDS:
            self._drawn = now
            self._live.update(self._picture(now), refresh=True)

    def pause(self) -> None:
        """Removes the bar, for a question."""
        self._live.stop()

    def resume(self) -> None:
        """Draws the bar again."""
        self._live.start()

    def close(self) -> None:
        """Removes the bar and prints the last, incomplete line of the output."""
        rest = self._line + self._decode(b"", final=True)
        self._print([rest] if rest else [])
        self._live.stop()

    def _picture(self, now: float) -> Group:
        progress = live_progress.read(self._progress)
        metrics = Text(self._newest.text(), style="dim", no_wrap=True, overflow="ellipsis")
        if progress is None or progress.wall < self._began:
            # The progress record of the previous session stays until this session has loaded its state.
            return Group(Text(f"starting  {time.time() - self._began:.0f}s", style="cyan"), metrics)
        eta = self._eta.seconds(now, progress.fraction)
        bar = _bar_line(progress, self._end_text(progress, eta, now), self._unit)
        return Group(bar, metrics, *self._durability.lines(now))

    def _end_text(self, progress: ProgressRecord, eta: float | None, now: float) -> str:
        """Returns when the run will be done, or at which step the session ends before that."""
        if eta is None or progress.phase == "ended":
            return ""
        if now - self._deadline_at >= _DEADLINE_SECONDS:  # a deadline file may have changed it
            self._deadline_at, record = now, sessions.load_record(self._record)
            self._deadline = None if record is None else sessions.unix_seconds(record.deadline)
        if self._deadline is not None:
            left = self._deadline - time.time()
            step = live_progress.last_step(progress, seconds_to_finish=eta, seconds_to_end=left)
            if step is not None:
                return f"ends ~{step:,} in {terminal.format_duration(max(0.0, left))}"
        return f"ETA {terminal.format_duration(eta)}"


def _bar_line(progress: ProgressRecord, end: str, unit: str) -> Table:
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, min_width=4)
    for _ in range(3):
        grid.add_column(no_wrap=True, justify="right")
    part, share = part_done(progress)
    bar = ProgressBar(total=1.0, completed=part) if share else Text("")
    going_on = progress.phase != "ended"
    rate = f"{progress.samples_per_second:,.0f} samples/s" if progress.samples_per_second and going_on else ""
    phase = progress.phase if going_on else "closing"  # the run is done, its processes still exit
    what = Text(phase, style="cyan") if phase != "training" else Text("")
    grid.add_row(format_progress(progress, unit), what, bar, share, rate, end)
    return grid


def part_done(progress: ProgressRecord) -> tuple[float, str]:
    """Returns the part of the run that is done, and its text. Where the project alone decides how long it
    trains (in DLNest's contract), it is the part of the epoch; of a loader without a length it is unknown,
    and the text empty."""
    if progress.total_steps or progress.fraction:
        return progress.fraction, f"{progress.fraction:4.0%}"
    if not progress.steps_per_epoch:
        return 0.0, ""
    part = min(1.0, progress.batch / progress.steps_per_epoch)
    return part, f"{part:4.0%} of the epoch"


def format_progress(progress: ProgressRecord, unit: str = "step") -> str:
    """Returns ``epoch 2/5  step 40/100``, as far as the numbers are known."""
    steps = f"{unit} {progress.step:,}" + (f"/{progress.total_steps:,}" if progress.total_steps else "")
    if not progress.steps_per_epoch:
        return steps
    epochs = -(-progress.total_steps // progress.steps_per_epoch)
    current = min(progress.epoch + 1, epochs) if epochs else progress.epoch + 1
    return f"epoch {current}{f'/{epochs}' if epochs else ''}  {steps}"


class Durability:
    """How far the remote copy of a run is, read once a second.

    Args:
        package: The package.
    """

    def __init__(self, package: Path) -> None:
        self._package = package
        self._read_at = float("-inf")
        self._lines: list[Text] = []

    def lines(self, now: float) -> list[Text]:
        """Returns the line about the copy; none without a copy.

        Args:
            now: Monotonic seconds.
        """
        if now - self._read_at >= _DURABILITY_SECONDS:
            self._read_at = now
            status = remote_status.read(self._package)
            style = "dim" if status is None or status.error is None else "yellow"
            text = "" if status is None else terminal.escape_text(remote_status.describe(status))
            self._lines = [Text(text, style=style, no_wrap=True, overflow="ellipsis")] if text else []
        return self._lines


class Eta:
    """Estimates the remaining time from the pace of the last half minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def seconds(self, now: float, fraction: float) -> float | None:
        """Returns the remaining seconds; None while they are unknown."""
        self._samples.append((now, fraction))
        while len(self._samples) > 2 and now - self._samples[0][0] > _PACE_SECONDS:
            self._samples.popleft()
        then, before = self._samples[0]
        if fraction <= before or now - then < 1.0:
            return None
        return (1.0 - fraction) * (now - then) / (fraction - before)


class NewestMetrics:
    """The newest value of every metric, from a records file that is being written."""

    def __init__(self, path: Path) -> None:
        self._follower = SessionFollower(path)
        self._last: dict[str, tuple[int, float]] = {}

    def text(self) -> str:
        """Returns ``train/loss 0.3121  valid/loss 0.3  …``; see `parts`."""
        return "  ".join(self.parts())

    def parts(self) -> list[str]:
        """Returns ``train/loss 0.3121``, ``valid/loss 0.3``, …, after reading the rows added since the last
        call."""
        for row in self._follower.new_rows():
            if "start_step" in row:  # a rollback: metrics of later steps are void
                self._last = {n: last for n, last in self._last.items() if last[0] <= row["start_step"]}
            self._last |= {name: (row["step"], value) for name, value in metrics(row).items()}
        return [f"{name} {terminal.format_number(value)}" for name, (_, value) in self._last.items()]
