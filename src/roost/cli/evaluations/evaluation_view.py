"""The results of an evaluation as text: a line for each cell, with the means of its metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roost.display import terminal
from roost.display.table import fit_table
from roost.package.results.evaluations import evaluation_folder
from roost.package.results.evaluations.evaluation_folder import EvaluationCell, EvaluationFolder

_MAX_METRICS = 6


def print_evaluation(folder: Path, *, as_json: bool) -> None:
    """Prints the cells of an evaluation with the means of their metrics, and where its files are."""
    cells = EvaluationFolder(folder).cells()
    if as_json:
        terminal.print_json({"folder": str(folder), "cells": [_entry(one) for one in cells]})
        return
    found = [(one, one.summary or {}) for one in cells]
    names = list(dict.fromkeys(name for _, summary in found for name in summary.get("metrics", {})))
    shown = names[:_MAX_METRICS]
    has_skipped = any(summary.get("num_skipped") for _, summary in found)
    header = ["checkpoint", "variant", "dataset", "samples", *(["skipped"] if has_skipped else []), *shown]
    rows = []
    for one, summary in found:
        skipped = [f"{summary.get('num_skipped', 0):,}"] if has_skipped else []
        samples = f"{summary['evaluated']:,}" if summary else one.state
        means = [_mean(summary, name) for name in shown]
        rows.append([one.checkpoint, one.variant, one.dataset, samples, *skipped, *means])
    for line in fit_table(header, rows):
        click.echo(line)
    if len(names) > len(shown):
        terminal.print_status(f"{len(names) - len(shown)} more metrics are in the summaries")
    report = folder / evaluation_folder.REPORT
    terminal.print_status(terminal.format_path(report if report.is_file() else folder))


def _mean(summary: dict[str, Any], name: str) -> str:
    value = summary.get("metrics", {}).get(name, {}).get("mean")
    return "" if value is None else terminal.format_number(value)


def _entry(one: EvaluationCell) -> dict[str, Any]:
    return {
        "checkpoint": one.checkpoint,
        "variant": one.variant,
        "dataset": one.dataset,
        "state": one.state,
        "folder": str(one.path),
        "summary": one.summary,
    }
