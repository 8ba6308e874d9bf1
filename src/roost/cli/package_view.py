"""Formats one package as text for `roost show`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from roost.base.text.byte_sizes import format_bytes, format_memory
from roost.base.text.counts import format_cores
from roost.base.text.word_list import join_names
from roost.display import table, terminal
from roost.operations.reading.determinism_summary import DeterminismSummary
from roost.operations.reading.show import (
    AnalysisDetails,
    CheckpointDetails,
    EvaluationDetails,
    PackageDetails,
    PredictionDetails,
    SessionDetails,
)
from roost.operations.reading.system_details import SystemDetails
from roost.package.lineage import ForkParent
from roost.package.results import skipped_steps


def format_package(shown: PackageDetails, *, is_all: bool = False) -> Iterator[str]:
    """Yields the lines about a package; `click.echo` removes the colours where none are allowed.

    Args:
        shown: The package.
        is_all: Whether to name defaults, and what was not copied, one by one.
    """
    yield from _summary_lines(shown)
    yield from _section("sessions", _sessions(shown.sessions))
    measured = [one for one in shown.sessions if one.system is not None]
    newest = measured if is_all else measured[-_MAX_MEASURED:]
    yield from _section("system", (line for one in newest for line in _system_lines(one)))
    yield from _section("initial weights", map(terminal.escape_text, _initial_weights_lines(shown)))
    yield from _section("checkpoints", _checkpoints(shown.checkpoints, _monitored_metrics(shown.settings)))
    yield from _section("analyses", _analyses(shown.analyses))
    yield from _section("predictions", _predictions(shown.predictions))
    yield from _section("evaluations", _evaluations(shown.evaluations))
    metrics = [[name, f"{value:.6g}"] for name, value in shown.metrics.items()]
    yield from _section("metrics", table.format_table(["NAME", "NEWEST"], metrics)[1:])
    yield from _section("media", _media(shown))
    hidden = () if is_all else frozenset(shown.defaults)
    settings = [
        [key, _truncate(terminal.escape_text(_format_value(value)))]
        for key, value in _flatten_settings(shown.settings, "")
        if key not in hidden
    ]
    yield from _section("settings", table.format_table(["SETTING", "VALUE"], sorted(settings))[1:])
    for title, remarks in _remarks(shown, is_all=is_all):
        yield from _section(title, map(terminal.escape_text, remarks))
    yield ""
    if more := _hidden_words(shown) if not is_all else "":
        yield f"not shown: {more}; roost show {terminal.quote_path(Path(shown.path))} --all"
    if shown.output is not None:
        yield f"output: {terminal.format_path(Path(shown.output))}"
    if shown.model is not None:
        yield f"model: {terminal.format_path(Path(shown.model))}"


def _summary_lines(shown: PackageDetails) -> Iterator[str]:
    row = shown.summary
    yield f"{click.style(terminal.escape_text(shown.path), bold=True)}  {terminal.format_state(row.state)}"
    if row.description:
        yield terminal.escape_text(row.description)
    if row.tags or row.starred:
        yield terminal.escape_text(", ".join([*(["starred"] if row.starred else []), *row.tags]))
    if row.note:
        yield terminal.escape_text(row.note)
    if row.durability is not None:
        yield terminal.escape_text(f"remote copy: {row.durability}  {row.remote}")
    yield from _lineage_lines(shown)
    where = (
        "" if row.step is None else f"step {row.step}" + (f"/{row.total_steps}" if row.total_steps else "")
    )
    changes = " with changes" if shown.git_dirty else ""
    commit = f"git {shown.git_commit[:12]}{changes}" if shown.git_commit else ""
    project = f"project {shown.project}" if shown.project else ""
    source = f"from {shown.source}" if shown.source else ""
    about = filter(None, (where, terminal.format_duration(row.seconds), project, source, commit))
    yield terminal.escape_text("  ".join(about))
    if shown.determinism is not None:
        yield _determinism(shown.determinism, shown.settings.get("determinism"))
    if shown.time is not None:
        yield f"time: {shown.time}"
    if shown.skipped:
        last, only = shown.skipped[-1], len(shown.skipped) == 1
        place = (
            f"{last.step}" if last.is_step else f"batch {last.batch} of {last.split} after step {last.step}"
        )
        counts = f"{skipped_steps.format_counts(shown.skipped)}{':' if only else ', the last:'}"
        yield f"{counts} {place}, {terminal.escape_text(last.error)}"
    if shown.black_box is not None:
        failed = f"step {shown.black_box.step}, {terminal.escape_text(shown.black_box.error)}"
        yield f"black box: {failed}; to debug it: roost debug {terminal.quote_path(Path(shown.path))}"
    if shown.records_damage:
        yield f"{click.style('warning:', fg='yellow')} {shown.records_damage}"
    if row.error:
        yield f"{click.style('error:', fg='red')} {terminal.escape_text(row.error)}"


def _media(shown: PackageDetails) -> list[str]:
    """``12 files of 3 steps: 100, 200, 300  in runs/NAME/media``"""
    if not shown.media:
        return []
    number, steps = sum(shown.media.values()), [str(step) for step in shown.media]
    files = f"{number} file{'' if number == 1 else 's'} of {len(steps)} step{'' if len(steps) == 1 else 's'}"
    return [
        f"{files}: {join_names(steps, _MAX_STEPS)}  in {terminal.format_path(Path(shown.path) / 'media')}"
    ]


_MAX_STEPS = 8


def _lineage_lines(shown: PackageDetails) -> Iterator[str]:
    """The package whose run began again; the parent of a fork and that one's ancestors; the forks."""
    if shown.rerun_of is not None:
        code = "its code" if shown.rerun_of["code"] == "package" else "the project's code of that day"
        source = terminal.format_path(Path(shown.rerun_of["path"]))
        yield terminal.escape_text(f"rerun of {source} with {code}")
    if shown.parent is not None:
        way = f"forked from {_describe_parent(shown.parent)}"
        way += "".join(f", itself forked from {_describe_parent(one)}" for one in shown.ancestors)
        yield terminal.escape_text(way)
        if changed := ", ".join(map(str, shown.parent.changed)):
            yield terminal.escape_text(f"changed: {changed}")
    if shown.forks:
        forks = ", ".join(f"{row.name} at step {row.parent_step}" for row in shown.forks)
        yield terminal.escape_text(f"forks: {forks}")


def _describe_parent(parent: ForkParent) -> str:
    return f"{terminal.format_path(Path(parent.path))} at step {parent.step} (checkpoint {parent.checkpoint})"


_ALGORITHMS = {
    "off": "no deterministic algorithms",
    "warn": "deterministic algorithms where torch has them",
    "only": "deterministic algorithms only",
}


def _determinism(found: DeterminismSummary, now: object) -> str:
    """The setting and the state of the stack when the run began; ``now`` is the current setting."""
    setting = found.asked or "not set"
    later = f", now {now}" if found.asked and now not in (None, found.asked) else ""
    in_force = [
        f"{found.threads} thread{'' if found.threads == 1 else 's'}" if found.threads is not None else "",
        _ALGORITHMS[found.algorithms],
        f"TF32 in {' and '.join(found.tf32)}" if found.tf32 else "no TF32",
        {None: "", True: "cuDNN benchmark", False: "no cuDNN benchmark"}[found.cudnn_benchmark],
    ]
    return terminal.escape_text(f"determinism {setting}{later}: {', '.join(filter(None, in_force))}")


def _section(title: str, body: Iterable[str]) -> Iterator[str]:
    found = list(body)
    if found:
        yield ""
        yield click.style(title, bold=True)
        yield from (f"  {line}" for line in found)


def _sessions(sessions: Sequence[SessionDetails]) -> list[str]:
    # If all sessions ran on one host, naming it in each line adds nothing.
    one_host = len({one.host for one in sessions}) == 1
    # The same holds for ranks, if no session had more than one.
    alone = all(one.ranks == 1 for one in sessions)
    header = ["", "STATE", "EXIT", "REASON", "STARTED", "WARM", "TIME", "HOST", "PID", "RANKS"]
    header += ["CHANGED", "ABOUT"]
    rows = [
        [
            str(one.number),
            terminal.format_state(one.state),
            "" if one.exit_code is None else str(one.exit_code),
            terminal.escape_text(one.reason or ""),
            terminal.format_time(one.started),
            "yes" if one.warm else "",
            terminal.format_duration(one.seconds),
            "" if one_host else one.host or "",
            str(one.pid or ""),
            "" if alone else f"{one.ranks} {one.strategy}",
            " ".join(one.overrides),
            terminal.escape_text(one.error or one.description or ""),
        ]
        for one in sessions
    ]
    return [
        *table.format_table(header, rows),
        *map(_lost_guard_line, (one for one in sessions if one.guard_lost)),
        *(_deadline_line(one) for one in sessions if one.deadline and one.state == "running"),
    ]


def _lost_guard_line(session: SessionDetails) -> str:
    continues = "continues" if session.state == "running" else "continued"
    moment = terminal.format_time(session.guard_lost)
    return f"session {session.number}: its guard was killed at {moment}; the session {continues} without one"


def _deadline_line(session: SessionDetails) -> str:
    step = (
        ""
        if session.last_step is None
        else f": ends about step {session.last_step:,}, before the run is done"
    )
    return f"session {session.number}: must end by {terminal.format_time(session.deadline)}{step}"


_MAX_MEASURED = 2


def _system_lines(session: SessionDetails) -> Iterator[str]:
    """What host, processes and cards of a session did, and the energy."""
    used = session.system
    assert used is not None
    host = used.host
    cpu = "" if host.cpu is None else f" {host.cpu:.0f} % busy"
    memory = _of_total("memory", host.peak_memory_mb, host.memory_mb)
    parts = [f"{format_cores(host.cores)}{cpu}" if host.cores else "", memory]
    parts += _process_parts(used)
    name = f" on {host.name}" if host.name else ""
    yield terminal.escape_text(f"session {session.number}{name}: {', '.join(filter(None, parts))}")
    for number, card in enumerate(used.cards):
        parts = [
            "" if card.utilization is None else f"{card.utilization:.0f} % busy",
            _of_total("memory", card.peak_memory_mb, card.total_mb),
            "" if card.power is None else f"{card.power:.0f} W",
            "" if card.temperature is None else f"{card.temperature:.0f} C",
            f"throttled {card.throttled:.0f} % of the time" if card.throttled else "",
            "" if card.energy_kwh is None else f"{_short(card.energy_kwh)} kWh",
        ]
        about = ", ".join(filter(None, parts)) or "not measured"
        yield terminal.escape_text(f"  GPU {number} {card.name or card.id}: {about}")
    if used.energy_kwh is not None and used.cost is not None:
        price = f"{_short(used.cost)} {used.currency}".strip()
        yield terminal.escape_text(f"  energy of the cards: {_short(used.energy_kwh)} kWh, {price}")
    if idle := [str(number) for number, card in enumerate(used.cards) if card.is_idle]:
        which = f"GPU {join_names(idle)} was" if len(idle) == 1 else f"GPUs {join_names(idle)} were"
        yield f"  {which} idle for most of the time: a run that requests fewer leaves them to others"
    if used.trouble:
        yield terminal.escape_text(f"  not measured: {used.trouble}")


def _process_parts(used: SystemDetails) -> Iterator[str]:
    """``its processes: 3h of CPU, read 12 GB, wrote 1 GB``"""
    found = []
    if used.cpu_seconds is not None:
        found.append(f"{terminal.format_duration(used.cpu_seconds)} of CPU")
    for verb, mb in (("read", used.read_mb), ("wrote", used.written_mb)):
        if mb and mb >= 1:
            found.append(f"{verb} {format_memory(mb)}")
    if found:
        yield f"its processes: {', '.join(found)}"


def _of_total(what: str, peak_mb: float | None, total_mb: float | None) -> str:
    total = f" of {format_memory(total_mb)}" if total_mb else ""
    return "" if peak_mb is None else f"{what} up to {format_memory(peak_mb)}{total}"


def _short(value: float) -> str:
    """A small amount with two significant digits, a large one with two decimals."""
    return f"{value:.2g}" if value < 1 else f"{value:.2f}"


def _initial_weights_lines(shown: PackageDetails) -> Iterator[str]:
    for one in shown.began_with:
        digest = f", sha256 {one.sha256[:12]}" if one.sha256 else ""
        yield f"{one.path}: {one.about}, {format_bytes(one.size)}{digest}: {one.loaded}"
        yield from (f"  {line}" for line in one.report)


def _monitored_metrics(settings: Mapping[str, Any]) -> list[str]:
    """The metrics by which hooks decide in this run; the settings of a damaged package may hold any value."""
    rules = _get(settings.get("checkpoint"), "best")
    deciding = [*(rules if isinstance(rules, list) else []), settings.get("early_stopping")]
    found = [_get(one, "monitor") for one in deciding]
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))


def _get(section: object, key: str) -> object:
    return section.get(key) if isinstance(section, Mapping) else None


def _checkpoint_metrics(metrics: Mapping[str, float | None], watched: Sequence[str]) -> str:
    """Metrics of a checkpoint: all if they are few, otherwise the monitored ones."""
    names = list(metrics)
    if len(names) > _MAX_METRICS:
        names = [name for name in watched if name in metrics] or names[:_MAX_METRICS]
    shown = [f"{name} {terminal.format_number(metrics[name])}" for name in names]
    more = len(metrics) - len(names)
    return "  ".join([*shown, *([f"… {more} more"] if more else [])])


_MAX_METRICS = 6


def _checkpoints(checkpoints: Sequence[CheckpointDetails], watched: Sequence[str]) -> list[str]:
    rows = [
        [
            str(one.id),
            str(one.step),
            str(one.epoch),
            one.reason,
            " ".join([*one.tracks, *(["newest"] if one.newest else [])])
            or ("left behind" if one.left_behind else ""),
            format_bytes(one.size_bytes),
            _checkpoint_metrics(one.metrics, watched),
        ]
        for one in checkpoints
    ]
    return table.format_table(["ID", "STEP", "EPOCH", "REASON", "TRACKS", "SIZE", "METRICS"], rows)


def _analyses(analyses: Sequence[AnalysisDetails]) -> list[str]:
    rows = [
        [
            str(one.number),
            terminal.format_state(one.state),
            terminal.escape_text(Path(one.script).name),
            "untrained" if one.untrained else "" if one.checkpoint is None else str(one.checkpoint),
            terminal.format_time(one.started),
            terminal.format_duration(one.seconds),
            terminal.escape_text(one.error or ""),
        ]
        for one in analyses
    ]
    return table.format_table(["", "STATE", "SCRIPT", "CHECKPOINT", "STARTED", "TIME", "ABOUT"], rows)


def _predictions(predictions: Sequence[PredictionDetails]) -> list[str]:
    rows = [
        [
            str(one.number),
            terminal.escape_text(one.source),
            str(one.checkpoint) + (f" {terminal.escape_text(one.averaged)}" if one.averaged else ""),
            str(one.samples),
            terminal.format_time(one.time),
            terminal.escape_text(" ".join(one.values)),
        ]
        for one in predictions
    ]
    return table.format_table(["", "DATA", "CHECKPOINT", "SAMPLES", "TIME", "VALUES"], rows)


def _evaluations(evaluations: Sequence[EvaluationDetails]) -> list[str]:
    rows = [
        [
            terminal.escape_text(one.name),
            f"{one.finished}/{one.cells}",
            terminal.format_path(Path(one.report or one.folder)),
        ]
        for one in evaluations
    ]
    return table.format_table(["NAME", "CELLS", "REPORT"], rows)


def _hidden_words(shown: PackageDetails) -> str:
    """``52 defaults, 2 paths that were not copied``; empty if nothing is hidden."""
    paths = {*shown.links, *(str(one["path"]) for one in shown.left_out)}
    defaults = f"{len(shown.defaults)} default{'s' * (len(shown.defaults) != 1)}" if shown.defaults else ""
    verbs = "path that was" if len(paths) == 1 else "paths that were"
    return ", ".join(filter(None, [defaults, f"{len(paths)} {verbs} not copied" if paths else ""]))


def _remarks(shown: PackageDetails, *, is_all: bool) -> Iterator[tuple[str, list[str]]]:
    yield "inexact", shown.inexact
    yield "damaged, set aside", shown.set_aside
    if is_all:
        yield "not copied", [f"{one['path']}: {one['reason']}" for one in shown.left_out]
        yield "links", [f"{name} -> {to}" for name, to in shown.links.items()]
    yield "command", [shown.command] if shown.command else []


def _flatten_settings(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flatten_settings(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _truncate(text: str) -> str:
    """Truncates a value, which may describe a whole model; ``args.json`` and --json have all of it."""
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 1]}…"


_MAX_VALUE_CHARACTERS = 200


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
