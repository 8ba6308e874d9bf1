"""What holds a run back: a pure function from what was measured to ranked bottlenecks, each with its
evidence, the setting that mends it, and how much faster the run should be with it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from roost.base.errors import ConfigError
from roost.base.interval import Interval
from roost.base.text.counts import format_cores
from roost.package.results.profiles.profile_record import HOOKS, LOGGING, ProfileRecord
from roost.package.results.time_breakdown import OTHER, PARTS

DATA, TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, VALIDATE, SAVE = PARTS
LOGGING_HOOKS = {
    "Records": "log_every",
    "Console": "log_every",
    "Console.on_epoch": "log_every",
    "Statistics": "statistics.every",
}
"""The hooks that log, with the setting that says how often."""
MEASURED_HOOKS = frozenset({"Validate", "Save"})
"""Hooks whose time is in the parts ``validate`` and ``save``."""

_MIN_DATA, _MIN_TRANSFER, _MIN_LOGGING, _MIN_HOOK = 0.15, 0.15, 0.1, 0.1
_MIN_VALIDATE, _MIN_SAVE, _MIN_OPTIMIZER, _MIN_LAUNCH = 0.25, 0.15, 0.4, 0.4
"""The least shares of the time that are named."""
_MIN_COMPUTE = 0.5
_MIN_SPEEDUP = 1.1
"""A setting with a smaller gain is not suggested."""
_BATCH_FACTOR, _ACCUMULATION_FACTOR = 8, 4
_MAX_WORKERS, _SPARE_WORKERS = 16, 1.2
_BUSY_CPU = 0.3


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run that takes time needlessly, and how to mend it."""

    kind: str
    """reading, transform, loading, transfer, launch, optimizer, logging, validation, saving, hook;
    compute: there is none; unclear: too little was measured."""
    share: float
    """Of the time, from 0 to 1."""
    text: str
    """The evidence in one sentence."""
    setting: str | None = None
    """The setting that mends it; None: only the project's code can."""
    received: str | None = None
    suggested: str | None = None
    speedup: float | None = None
    """How many times as many samples a second are expected with it; None: unknown."""
    fix: str = ""


def find_bottlenecks(record: ProfileRecord) -> list[Bottleneck]:
    """Returns what holds a run back, what takes most of the time first; ``compute`` alone if nothing does."""
    times = _Times(record)
    found = [
        *_data(times),
        *_transfer(times),
        *_logging(times),
        *_hooks(times),
        *_validation(times),
        *_saving(times),
    ]
    launch = list(_launch(times))
    found += launch or _optimizer(times)
    found.sort(key=lambda one: -one.share)
    return found or [_compute(times)]


def format_bottleneck(found: Bottleneck) -> Iterator[str]:
    """Yields the lines about one bottleneck: its evidence, and how to mend it."""
    yield f"{found.kind}: {found.text}"
    gain = "" if found.speedup is None else f": about {found.speedup:.1f}× as fast"
    if found.setting is not None:
        before = "" if found.received is None else f"{found.received} → "
        yield f"  {found.setting}: {before}{found.suggested}{gain}"
    if found.fix:
        yield f"  {found.fix}{gain if found.setting is None else ''}"


def milliseconds_per_step(record: ProfileRecord) -> dict[str, float]:
    """Returns the time of a step by parts, rows and hooks included, without parts that took none."""
    return {part: ms for part, ms in _Times(record).of.items() if ms > 0}


def notes(record: ProfileRecord) -> list[str]:
    """Returns what limits the trust in the figures."""
    found = []
    if record.cpu_wait is not None and record.cpu_wait >= _BUSY_CPU:
        share = f"the run got {1 - record.cpu_wait:.0%} of the CPU time that it requested"
        found.append(f"the CPU is busy: other processes compute on it, and {share}")
    return found


class _Times:
    """The times of a record in ms per step, divided so that each counts once."""

    def __init__(self, record: ProfileRecord) -> None:
        self.record = record
        self.step = 1000 * record.seconds / record.steps
        self.of = {part: 1000 * record.parts.get(part, 0.0) / record.steps for part in PARTS}
        measured = sum(self.of.values())
        between = max(0.0, self.step - measured)
        # On an accelerator a row also waits for work that is counted in the parts already.
        per_hook = {name: 1000 * seconds / record.steps for name, seconds in record.hooks.items()}
        self.logging = dict.fromkeys(LOGGING_HOOKS.values(), 0.0)
        """The time of a step by the setting that decides on it."""
        for name, setting in LOGGING_HOOKS.items():
            self.logging[setting] += per_hook.get(name, 0.0)
        self.of[LOGGING] = min(between, sum(self.logging.values()))
        self.hooks = {
            name: ms
            for name, ms in per_hook.items()
            if name not in LOGGING_HOOKS and name not in MEASURED_HOOKS
        }
        self.of[HOOKS] = min(between - self.of[LOGGING], sum(self.hooks.values()))
        self.of[OTHER] = between - self.of[LOGGING] - self.of[HOOKS]
        self.compute = self.of[FORWARD] + self.of[BACKWARD] + self.of[OPTIMIZER]

    def share(self, part: str) -> float:
        return self.of[part] / max(self.step, sum(self.of.values()))

    def percent(self, part: str) -> str:
        return f"{self.share(part):.0%}"

    def speedup(self, saved_ms: float) -> float:
        """How many times as fast the run is without some of the time of a step."""
        return self.step / max(self.step - saved_ms, 1e-6)

    def ms(self, part: str) -> str:
        return f"{_number(self.of[part])} of {_number(self.step)} ms a step"


# ---- data -----------------------------------------------------------------------------------------------


def _data(times: _Times) -> Iterator[Bottleneck]:
    if times.share(DATA) < _MIN_DATA:
        return
    record, loading = times.record, times.record.loading
    kind, why, waits = "loading", "", 0.0
    if loading is not None:
        waits = loading.wait_share
        kind = "reading" if waits >= 0.5 else "transform"
        who = "the training process loads them itself, and" if record.num_workers == 0 else "a loader worker"
        does = "waits for a disk, a network or another process" if kind == "reading" else "computes"
        place = _hot_place(record, kind)
        at = f", mostly at {place}" if place else ""
        why = f"; {who} {does} {max(waits, 1 - waits):.0%} of that time{at}"
    number, speedup = _better_workers(times, kind, waits)
    code = {
        "reading": "put the data on a faster disk, or into fewer and larger files",
        "transform": "make the transform cheaper, or store its result",
        "loading": "make __getitem__ faster",
    }[kind]
    if number is not None:
        code = f"or {code}"
    elif kind == "transform" and record.num_workers is not None and record.num_workers >= record.cores:
        code = f"the loader workers use the {format_cores(record.cores)} of the machine: {code}"
    yield Bottleneck(
        kind=kind,
        share=times.share(DATA),
        text=f"training waits {times.percent(DATA)} of its time for batches ({times.ms(DATA)}){why}",
        setting=None if number is None else "data.num_workers",
        received=None if number is None else str(record.num_workers),
        suggested=None if number is None else str(number),
        speedup=times.speedup(times.of[DATA]) if number is None else speedup,
        fix=code,
    )


def _better_workers(times: _Times, kind: str, waits: float) -> tuple[int | None, float | None]:
    """Returns a better number of loader workers with the expected gain; None: more would not help, or
    nothing is known about them."""
    record, now = times.record, times.record.num_workers
    if now is None:
        return None, None
    rest = max(times.step - times.of[DATA], 1e-3)
    busy = 1.0 if record.loading is None else record.loading.busy / record.loading.seconds
    load = now * busy * times.step if now else times.of[DATA]
    computed = load * (1 - waits)
    number = max(now + 1, min(_MAX_WORKERS, math.ceil(_SPARE_WORKERS * load / rest)))
    if kind != "reading":
        number = min(number, record.cores)
    # On a CPU the training computes on the same cores.
    on_cores = (computed + (rest if record.device == "cpu" else 0.0)) / record.cores
    speedup = times.step / max(rest, load / number, on_cores)
    return (number, speedup) if number > now and speedup >= _MIN_SPEEDUP else (None, None)


def _hot_place(record: ProfileRecord, kind: str) -> str:
    part = "worker" if record.num_workers else DATA
    found = [one for one in record.lines if one.part == part and one.is_computing == (kind == "transform")]
    return max(found, key=lambda one: one.number).place if found else ""


def _transfer(times: _Times) -> Iterator[Bottleneck]:
    if times.share(TO_DEVICE) >= _MIN_TRANSFER:
        yield Bottleneck(
            kind="transfer",
            share=times.share(TO_DEVICE),
            text=f"moving batches to the device takes {times.percent(TO_DEVICE)} ({times.ms(TO_DEVICE)})",
            speedup=times.speedup(times.of[TO_DEVICE]),
            fix="move smaller values (uint8 pictures, bf16), and convert them there",
        )


# ---- steps ----------------------------------------------------------------------------------------------


def _launch(times: _Times) -> Iterator[Bottleneck]:
    """A step whose time does not follow from its work: too small for the device, or held up by Python."""
    record, operators = times.record, times.record.operators
    if operators is None or times.compute <= 0:
        return
    is_on_host = record.device == "cpu"
    worked = operators.work_share * times.compute if is_on_host else operators.kernel_ms
    fixed = max(0.0, times.compute + times.of[OTHER] - worked)
    share = min(1.0, fixed / times.step)
    if share < _MIN_LAUNCH:
        return
    size = record.samples / record.steps / record.batches_per_step
    each = 1000 * times.compute / operators.calls
    text = (
        f"{share:.0%} of the time does not depend on the batch: a step launches {operators.calls:,} "
        f"operators of {_number(each)} µs each, for {_number(size)} samples in a batch (an operator on one "
        f"number takes {_number(operators.empty_us)} µs)"
    )
    batch = max(1, round(size)) * _BATCH_FACTOR
    compiled = "" if is_on_host else "; or step_mode: compile, which launches fewer kernels"
    yield Bottleneck(
        kind="launch",
        share=share,
        text=text,
        setting="data.batch_size",
        received=str(max(1, round(size))),
        suggested=str(batch),
        speedup=times.speedup(fixed * (1 - 1 / _BATCH_FACTOR)),
        fix=f"a larger batch trains differently: choose the learning rate again{compiled}",
    )


def _optimizer(times: _Times) -> list[Bottleneck]:
    if times.share(OPTIMIZER) < _MIN_OPTIMIZER:
        return []
    now = times.record.batches_per_step
    return [
        Bottleneck(
            kind="optimizer",
            share=times.share(OPTIMIZER),
            text=f"the optimizer takes {times.percent(OPTIMIZER)} of the time ({times.ms(OPTIMIZER)})",
            setting="gradient_accumulation_steps",
            received=str(now),
            suggested=str(now * _ACCUMULATION_FACTOR),
            speedup=times.speedup(times.of[OPTIMIZER] * (1 - 1 / _ACCUMULATION_FACTOR)),
            fix="fewer steps of more samples train differently; or freeze parameters",
        )
    ]


def _compute(times: _Times) -> Bottleneck:
    if times.compute < _MIN_COMPUTE * times.step:
        shares = ", ".join(f"{part} {times.percent(part)}" for part in times.of if times.of[part] > 0)
        return Bottleneck(
            kind="unclear",
            share=1 - times.compute / times.step,
            text=f"the measured steps do not say what holds the run back ({shares})",
            fix="measure more of them: profile.seconds",
        )
    shares = ", ".join(f"{part} {times.percent(part)}" for part in (FORWARD, BACKWARD, OPTIMIZER))
    return Bottleneck(
        kind="compute",
        share=min(1.0, times.compute / times.step),
        text=f"the time is spent on computing ({shares}; data {times.percent(DATA)}): nothing to mend here",
        fix="only a faster device, a lower precision, or a smaller model makes it faster",
    )


# ---- between the steps ----------------------------------------------------------------------------------


def _logging(times: _Times) -> Iterator[Bottleneck]:
    if times.share(LOGGING) < _MIN_LOGGING:
        return
    calls, steps = times.record.calls, f"{times.record.steps:,} steps"
    setting = max(times.logging, key=lambda one: times.logging[one])
    what = f"{calls.get('Records', 0):,} rows"
    if setting == "statistics.every":
        what = f"{calls.get('Statistics', 0):,} times the statistics of gradients and weights"
    waits = "" if times.record.device == "cpu" else ", and each waits for the device"
    text = f"{times.percent(LOGGING)} of the time: {what} in {steps}{waits}"
    yield _rarer(times, LOGGING, "logging", setting, text, target=0.02, fix="")


def _validation(times: _Times) -> Iterator[Bottleneck]:
    number = times.record.calls.get("Validate", 0)
    if times.share(VALIDATE) < _MIN_VALIDATE or not _is_known(times, number, "validate_every"):
        return
    text = (
        f"validations take {times.percent(VALIDATE)} of the time: {number:,} in {times.record.steps:,} steps"
    )
    fix = "or validate on fewer batches: data.limit_valid_batches"
    yield _rarer(times, VALIDATE, "validation", "validate_every", text, target=0.1, fix=fix)


def _saving(times: _Times) -> Iterator[Bottleneck]:
    number = times.record.calls.get("Save", 0)
    if times.share(SAVE) < _MIN_SAVE or not _is_known(times, number, "checkpoint.every"):
        return
    share = times.percent(SAVE)
    text = f"saving takes {share} of the time: {number:,} checkpoints in {times.record.steps:,} steps"
    yield _rarer(times, SAVE, "saving", "checkpoint.every", text, target=0.05, fix="")


def _is_known(times: _Times, number: int, setting: str) -> bool:
    """Whether the measured steps say how often something is done: they had it twice, or are as many as its
    interval."""
    interval = times.record.intervals.get(setting, "")
    return number > 1 or (number == 1 and interval.isdecimal() and int(interval) <= times.record.steps)


def _hooks(times: _Times) -> Iterator[Bottleneck]:
    for name, ms in times.hooks.items():
        share = ms / times.step
        if share >= _MIN_HOOK:
            calls = times.record.calls.get(name, 0)
            yield Bottleneck(
                kind="hook",
                share=share,
                text=f"{name} takes {share:.0%} of the time ({calls:,} call{'s' * (calls != 1)})",
                speedup=times.speedup(ms),
                fix="call it less often: its attribute every, or its setting",
            )


def _rarer(
    times: _Times, part: str, kind: str, setting: str, text: str, *, target: float, fix: str
) -> Bottleneck:
    """Returns a bottleneck that is mended by doing something less often, until it takes ``target`` of the
    time."""
    rest = max(times.step - times.of[part], 1e-6)
    factor = _round_up(times.of[part] / rest * (1 - target) / target)
    interval = times.record.intervals.get(setting)
    suggested = None if interval is None else scale_interval(interval, factor)
    return Bottleneck(
        kind=kind,
        share=times.share(part),
        text=text,
        setting=setting,
        received=interval,
        suggested=suggested or f"{factor} times as long",
        speedup=times.speedup(times.of[part] * (1 - 1 / factor)),
        fix=fix,
    )


def scale_interval(interval: str, factor: int) -> str | None:
    """Returns an interval that is ``factor`` times as long; None if the text is none."""
    try:
        found = Interval.parse(interval, setting="every")
    except ConfigError:
        return None
    if found.steps:
        return str(found.steps * factor)
    if found.epochs:
        return f"{found.epochs * factor}ep"
    if found.per_epoch:
        if found.per_epoch > factor:
            return f"{found.per_epoch // factor}/ep"
        return f"{math.ceil(factor / found.per_epoch)}ep"
    return str(Interval(seconds=found.seconds * factor)) if found.seconds else None


def _round_up(factor: float) -> int:
    """Rounds up to 2, 5, 10, 20, 50, …"""
    size = 1
    while True:
        for digit in (1, 2, 5):
            if digit * size >= max(factor, 2):
                return digit * size
        size *= 10


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
