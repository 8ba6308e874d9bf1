"""The options that say what is evaluated: of `roost evaluate`, of `roost submit evaluate`, and, with
``--evaluate``, of the commands that begin a training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.base.errors import UsageError
from roost.package.kinds import CELL_TEMPLATE

if TYPE_CHECKING:
    from roost.operations.evaluating.evaluation_request import EvaluateRequest

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)

_CHECKPOINTS = click.option(
    "--checkpoints",
    metavar="SELECTORS",
    help="best, last, an id, average(best:10), average(last:5), or a kept average; several with commas. "
    "Default: best, else last.",
)
_VARIANTS = click.option(
    "--variants",
    type=_PATH,
    metavar="FILE",
    help="A file with arguments for Runner.test: grid, zip, list.",
)
_ALL = (
    _CHECKPOINTS,
    click.option("--weights", type=_PATH, metavar="FILE", help="Also, or only, the weights of a file."),
    click.option("--monitor", metavar="METRIC", help="The metric of best; default: as in the settings."),
    click.option("--mode", type=click.Choice(["min", "max"]), help="Which values of --monitor are best."),
    _VARIANTS,
    click.option("--datasets", metavar="NAMES", help="Sets, with commas; default: all test sets."),
    click.option("--name", help="The evaluation's name; the same command again goes on with it."),
    click.option(
        "--template",
        default=CELL_TEMPLATE,
        show_default=True,
        help="The folder of each cell below that of the evaluation.",
    ),
    click.option(
        "--on-step-error",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="skip: record the samples of a batch that fails, and go on.",
    ),
    click.option("--project", type=_PATH, help="The current path of the project, to find its data."),
)
_FIELDS = (
    "checkpoints",
    "weights",
    "monitor",
    "mode",
    "variants",
    "name",
    "template",
    "on_step_error",
    "project",
)
_FOLLOWING = ("checkpoints", "variants")


def evaluation_options(command: F) -> F:
    """Adds all of them to a command, which reads them by `take_evaluation`."""
    for option in reversed(_ALL):
        command = option(command)
    return command


def take_evaluation(options: dict[str, Any]) -> dict[str, Any]:
    """Removes the options from a command's options; returns them as fields of `EvaluateRequest`."""
    found = {name: options.pop(name) for name in _FIELDS}
    datasets = options.pop("datasets")
    listed = None if datasets is None else [one.strip() for one in datasets.split(",")]
    return {**found, "datasets": None if listed is None else [one for one in listed if one]}


def following_evaluation(command: F) -> F:
    """Adds ``--evaluate`` and what it evaluates to a command that begins a training, which reads them by
    `take_following_evaluation`."""
    flag = click.option(
        "--evaluate", is_flag=True, help="Evaluate when the training has finished, as roost evaluate does."
    )
    return flag(_CHECKPOINTS(_VARIANTS(command)))


def take_following_evaluation(options: dict[str, Any]) -> EvaluateRequest | None:
    """Removes the options of `following_evaluation` from a command's options; returns the request, without
    its package; None without ``--evaluate``.

    Raises:
        UsageError: The others are given without it.
    """
    is_asked, given = options.pop("evaluate"), {name: options.pop(name) for name in _FOLLOWING}
    if not is_asked:
        for name, value in given.items():
            if value is not None:
                raise UsageError(
                    "says what is evaluated", setting=f"--{name}", received=str(value), fix="add --evaluate"
                )
        return None
    from roost.operations.evaluating.evaluation_request import EvaluateRequest

    return EvaluateRequest(package=Path(), command=sys.argv, **given)
