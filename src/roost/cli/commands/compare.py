"""`roost compare`."""

from __future__ import annotations

import sys

import click

from roost.base.errors import UsageError
from roost.display import table, terminal


@click.command("compare")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
@click.option(
    "-m",
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Only this metric: loss, 'valid/*', 'perf/*'.",
)
@click.option(
    "--at", "step", type=click.IntRange(0), metavar="STEP", help="Compare the metrics at this step, too."
)
@click.option("--diff", "shows_diff", is_flag=True, help="Print the lines in which the code differs.")
@click.option(
    "--file", "files", multiple=True, metavar="PATTERN", help="With --diff: only these files: 'Model/*'."
)
@click.option(
    "--evaluation", "is_evaluation", is_flag=True, help="Compare two evaluations, sample by sample."
)
@click.option("--all", "is_all", is_flag=True, help="Also what is equal, and all metrics.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all values.")
def command(
    words: tuple[str, ...],
    metrics: tuple[str, ...],
    step: int | None,
    shows_diff: bool,
    files: tuple[str, ...],
    is_evaluation: bool,
    is_all: bool,
    as_markdown: bool,
    as_json: bool,
) -> int:
    """Compares packages: settings, metrics, code and environment, as far as they differ; with --evaluation
    two evaluations, sample by sample.

    PACKAGE is a path, a name in ./runs, a task, a sweep, a folder of packages, a pattern in quotes, or a
    query as of `roost ls`. A single fork is compared with its parent.

    Of each metric the newest value is shown, the best one with its step, and the one at the last step that
    all runs have reached; * marks the best one. Of two runs also: the first step at which a recorded value
    differs. Up to five runs are columns; more are lines of one table. The exit code is 0 whether or not they
    differ.

    With --evaluation, A and B are packages with one evaluation, evaluations (PACKAGE/NAME) or folders of
    cells. Samples are paired by their ids: the difference A - B of each metric with the 95 % interval of a
    paired bootstrap, how often A is better or worse, the samples where A is worse, and each group.

    \b
    roost compare runs/A runs/B
    roost compare runs/A runs/B --diff --file 'Model/*'
    roost compare runs/FORK                         # with its parent
    roost compare SWEEP -m 'valid/*'
    roost compare runs 'lr<1e-3 status:succeeded' --markdown
    roost compare runs/A runs/B --json | jq .curves.step
    roost compare --evaluation runs/A/beam runs/B/beam -m wer
    """
    if files and not shows_diff:
        raise UsageError("--file is for --diff", received=files[0], fix="add --diff, or leave out --file")
    if is_evaluation and (shows_diff or step is not None):
        raise UsageError(
            "evaluations have neither code nor steps",
            received="--evaluation " + ("--diff" if shows_diff else "--at"),
            fix="leave out one of them",
        )
    if as_json and as_markdown:
        raise UsageError("there is one form of the output", received="--json --markdown", fix="leave out one")
    if is_evaluation:
        return _compare_evaluations(words, metrics, as_markdown=as_markdown, as_json=as_json, is_all=is_all)
    from roost.operations.comparing.compare import compare
    from roost.operations.listing.named_packages import select_packages

    packages = select_packages(words)
    compared = compare(
        packages, metrics=metrics, step=step, diff=files if shows_diff else None, is_all=is_all
    )
    if as_json:
        terminal.print_json(compared)
        return 0
    from roost.cli.comparing.comparison_view import format_markdown, format_text

    width = table.terminal_width()
    lines = format_markdown(compared, is_all=is_all) if as_markdown else format_text(
        compared, width=width, is_all=is_all
    )  # fmt: skip
    for text in lines:
        click.echo(terminal.escape_line(text), color=terminal.allows_colours(sys.stdout))
    return 0


def _compare_evaluations(
    words: tuple[str, ...], metrics: tuple[str, ...], *, as_markdown: bool, as_json: bool, is_all: bool
) -> int:
    if len(words) != 2:
        raise UsageError(
            "--evaluation compares two evaluations",
            received=len(words),
            fix="name A and B, as for `roost compare -h`",
        )
    from roost.operations.comparing.evaluation_comparison import compare_evaluations

    compared = compare_evaluations(*words, metrics=metrics)
    if as_json:
        terminal.print_json(compared)
        return 0
    from roost.cli.evaluations import evaluation_comparison_view as view

    width = table.terminal_width()
    lines = (
        view.format_markdown(compared, is_all=is_all)
        if as_markdown
        else view.format_text(compared, width=width, is_all=is_all)
    )
    for text in lines:
        click.echo(terminal.escape_line(text), color=terminal.allows_colours(sys.stdout))
    return 0
