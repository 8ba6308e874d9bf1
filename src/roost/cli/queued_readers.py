"""The forms `roost submit analyze`, `predict` and `evaluate`: tasks that only read a package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import UsageError
from roost.cli.options.checkpoint_option import checkpoint_option
from roost.cli.options.evaluation_options import evaluation_options, take_evaluation
from roost.cli.options.resource_options import take_task_options, task_options
from roost.cli.options.trust_option import trust_option
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.queue.new_tasks import NewTasks

_OF_TRAININGS = ("strategy", "ddp", "fsdp", "several_cards", "max_parallel")
"""Options that the operations refuse; the help does not show them."""
_NEWEST, _UNTRAINED = "-1", "-2"
"""Document 000's words for the newest checkpoint, and for none."""

_PATH = click.Path(path_type=Path)
_RECORD = click.option("-r", "--record", type=_PATH, help="The package, if not given as the argument.")
_PROJECT = click.option("--project", type=_PATH, help="The current path of the project, to find its data.")


@click.command("analyze")
@click.argument("package", required=False, metavar="PACKAGE", type=click.Path(path_type=Path))
@click.option(
    "-r", "--record", type=click.Path(path_type=Path), help="The package, if not given as the argument."
)
@checkpoint_option("The checkpoint to load")
@click.option("--untrained", is_flag=True, help="Use the weights as the Runner builds them; also -c -2.")
@click.option(
    "-s",
    "--scripts",
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="A script, or a folder of scripts, that it may run, too.",
)
@task_options
@trust_option
@click.option(
    "--project", type=click.Path(path_type=Path), help="The current path of the project, to find its data."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def analyze(package: Path | None, record: Path | None, as_json: bool, **options: Any) -> int:
    """Queues an analyzer: a task that loads a package once, and then runs one script after another.

    It belongs to the lab and runs until `roost stop`. The training of the package may still be running, and
    several analyzers may read one package. Without a card: --gpus 0.

    \b
    roost submit analyze runs/NAME
    roost submit analyze runs/NAME -c best -m 4GB
    roost submit analyze runs/NAME --untrained -s ~/scripts --gpus 0
    """
    from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer

    word = options.pop("checkpoint")
    untrained = options.pop("untrained") or word == _UNTRAINED
    request = AnalyzerRequest(
        package=_one_package(package, record, "analyze"),
        checkpoint=None if word in (_NEWEST, _UNTRAINED) else word,
        untrained=untrained,
        options=take_task_options(options)[0],
        command=sys.argv,
        **options,
    )
    return _report(start_analyzer(request), as_json=as_json)


@click.command("predict")
@click.argument("package", required=False, metavar="PACKAGE", type=click.Path(path_type=Path))
@click.argument("source", required=False)
@click.option(
    "-r", "--record", type=click.Path(path_type=Path), help="The package, if not given as the argument."
)
@click.option("--data", help="The source, if not given as the argument.")
@checkpoint_option()
@click.option("--averaged", metavar="NAME", help="The weights of this average, one of the setting averages.")
@task_options
@click.option(
    "--project", type=click.Path(path_type=Path), help="The current path of the project, to find its data."
)
@click.option("--batch-size", type=int, metavar="N", help="Samples per batch; default: as in the settings.")
@click.option("--num-workers", type=int, metavar="N", help="Loader workers; default: as in the settings.")
@click.option("--limit", type=int, metavar="N", help="Only the first N samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def predict(
    package: Path | None,
    source: str | None,
    record: Path | None,
    data: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Queues a prediction, as `roost predict` makes it.

    SOURCE is a set (test, valid/NAME) or an argument for the Dataset's `predict`. The results are stored in
    the package, in predictions/N. The training of the package may still be running.

    \b
    roost submit predict runs/NAME test
    roost submit predict runs/NAME photos/ -c best -m 4GB
    """
    from roost.operations.models.predict import PredictRequest, submit_predict

    if record is not None and package is not None and source is None:
        package, source = None, str(package)
    if (source is None) == (data is None):
        raise UsageError("name one source", fix="type `roost submit predict runs/NAME test`")
    task = take_task_options(options)[0]
    request = PredictRequest(
        package=_one_package(package, record, "predict"),
        source=source or data or "",
        command=sys.argv,
        **options,
    )
    return _report(submit_predict(request, task), as_json=as_json)


@click.command("evaluate")
@click.argument("arguments", nargs=-1, metavar="PACKAGE [a.b=c]...")
@click.option(
    "-r", "--record", type=click.Path(path_type=Path), help="The package, if not given as the argument."
)
@evaluation_options
@task_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def evaluate(arguments: tuple[str, ...], record: Path | None, as_json: bool, **options: Any) -> int:
    """Queues an evaluation, as `roost evaluate` makes it; with several cards, a process on each.

    \b
    roost submit evaluate runs/NAME
    roost submit evaluate runs/NAME --checkpoints 'average(best:10),last' --variants variants.yaml --gpus 2
    """
    from roost.cli.commands.evaluate import package_and_overrides
    from roost.operations.evaluating.evaluate import submit_evaluate
    from roost.operations.evaluating.evaluation_request import EvaluateRequest

    package, overrides = package_and_overrides(arguments, record, example="roost submit evaluate runs/NAME")
    fields = take_evaluation(options)
    task = take_task_options(options)[0]
    request = EvaluateRequest(package=package, overrides=overrides, command=sys.argv, **fields, **options)
    return _report(submit_evaluate(request, task), as_json=as_json)


for _command in (analyze, predict, evaluate):
    for _parameter in _command.params:
        if isinstance(_parameter, click.Option) and _parameter.name in _OF_TRAININGS:
            _parameter.hidden = True

FORMS = {"analyze": analyze, "predict": predict, "evaluate": evaluate}
"""The forms, by the word after `roost submit`."""


def _one_package(package: Path | None, record: Path | None, form: str) -> Path:
    found = package if package is not None else record
    if found is None or (package is not None and record is not None):
        raise UsageError("name one package", fix=f"type `roost submit {form} runs/NAME`")
    return found


def _report(found: NewTasks, *, as_json: bool) -> int:
    """Prints the queued task: its id and its folder."""
    from roost.operations.queue.resources import begin_notes

    (task,) = found.tasks
    for note in (*found.notes, *begin_notes(task.begin)):
        terminal.print_status(note)
    if as_json:
        keys = ("id", "label", "name", "kind", "package", "session_folder", "begin")
        terminal.print_json([{key: getattr(task, key) for key in keys}])
        return 0
    click.echo(terminal.escape_line(f"{task.id}  {terminal.format_path(task.folder)}"))
    terminal.print_status(
        f"{task.label}: roost logs -f {task.label} follows it, roost stop {task.label} ends it"
    )
    return 0
