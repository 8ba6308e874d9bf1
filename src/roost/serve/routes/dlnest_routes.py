"""The routes of DLNest, for programs that were written for them: its paths, parameters and
answers, carried out by roost's operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from roost.analysis.analyzers import analyzer_folder
from roost.base.errors import RoostError
from roost.base.text.terminal_styles import StyleParser
from roost.lab.queue.task import LIVE, PENDING
from roost.operations.analyzers import script_call
from roost.operations.analyzers.script_call import UNTRAINED_ID
from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer
from roost.operations.devices import devices
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.lifecycle.new_project import new_project, no_plugins
from roost.operations.queue import sleep_limit, task_control
from roost.operations.queue.list_tasks import list_tasks
from roost.operations.queue.new_tasks import NewTasks
from roost.operations.queue.submit import SubmitRequest, submit, submit_continue
from roost.operations.reading.output_reader import tail_offset
from roost.operations.sessions.session_request import output_size
from roost.operations.task_results import TaskRow
from roost.package import session_folder, sessions
from roost.package.dlnest.original_package import open_any
from roost.package.kinds import TaskKind
from roost.package.resume import environment
from roost.serve import request_journal
from roost.serve.http import error_response, form_parameters
from roost.serve.http.route import RequestParameters, Route, encode_json, execute
from roost.serve.routes import card_sharing, event_streams, served_packages, task_resources
from roost.serve.routes.card_sharing import SharedCardParameters
from roost.serve.routes.event_streams import MAX_BYTES
from roost.serve.routes.machine import NoParameters

_PATH = Annotated[str, Meta(min_length=1, max_length=4096)]
_TEXT = Annotated[str, Meta(max_length=1000)]
_TASK = Annotated[str, Meta(min_length=1, max_length=255)]
_CHECKPOINT = Annotated[int, Meta(ge=-1, le=2**62)]
_Answer = dict[str, Any]
_CPU = -1
_MAX_TASKS = 1000
_CACHED_SETTINGS = 4096
_MAX_LINES = 10_000
"""Of an analyzer's output, without an offset. DLNest keeps 10,000 pieces."""
_TYPES = {
    TaskKind.TRAIN: "Train", TaskKind.COMMAND: "Command", TaskKind.ANALYZE: "Analyze",
    TaskKind.PREDICT: "Predict", TaskKind.EVALUATE: "Evaluate",
}  # fmt: skip


class RunTrain(SharedCardParameters, frozen=True, kw_only=True):
    """A training."""

    config_path: _PATH
    freq_path: Annotated[str, Meta(max_length=4096)] = ""
    description: _TEXT = ""
    no_save: bool = False
    """Name the package NOSAVE; wins over ``use_description``."""
    use_description: bool = False
    """Name the package by the description."""


class ContinueTrain(SharedCardParameters, frozen=True, kw_only=True):
    """The next session of a package."""

    record_path: _PATH
    checkpoint_ID: _CHECKPOINT = -1
    """-1: the newest checkpoint that is not damaged."""
    description: _TEXT = ""
    overrides: Annotated[tuple[_TEXT, ...], Meta(max_length=256)] = ()
    """As for `roost continue`, such as ``max_epochs=20``: a finished run trains longer. DLNest has no such
    field."""


class AnalyzePackage(RequestParameters, frozen=True, kw_only=True):
    """A package to analyze."""

    record_path: _PATH
    script_path: Annotated[str, Meta(max_length=4096)] = ""
    """A further folder of scripts, or a single script."""
    checkpoint_ID: Annotated[int, Meta(ge=UNTRAINED_ID, le=2**62)] = -1
    """-1: the newest checkpoint that is not damaged; -2: none, the weights as the project builds them."""
    memory_consumption: card_sharing.MemoryMb = -1
    CPU: bool = False


class RunExperiment(RequestParameters, frozen=True, kw_only=True):
    """A script for an analyzer."""

    task_ID: _TASK
    command: _PATH


class DeleteTask(RequestParameters, frozen=True, kw_only=True):
    """A task to stop."""

    task_ID: _TASK


class NewProj(RequestParameters, frozen=True, kw_only=True):
    """A folder for a new project."""

    target_dir: _PATH
    MNIST: bool = False
    plugins: Annotated[str, Meta(max_length=4096)] = ""
    """Refused: a config names its plugins."""


class AddPlugins(RequestParameters, frozen=True, kw_only=True):
    """Plugins for a project, which are refused."""

    target_dir: _PATH
    plugins: Annotated[str, Meta(max_length=4096)]
    full: bool = False


class ChangeDelay(RequestParameters, frozen=True, kw_only=True):
    """The longest sleep of the lab's daemon."""

    new_delay: int
    """Seconds."""


class ChangeCards(RequestParameters, frozen=True, kw_only=True):
    """The cards that tasks may use."""

    new_devices_IDs: Annotated[tuple[Annotated[int, Meta(ge=-1, le=4096)], ...], Meta(max_length=4096)]
    """Their numbers; -1 is the CPU, which tasks may always use."""


class ChangeMaxTasks(RequestParameters, frozen=True, kw_only=True):
    """The number of tasks that may share a card."""

    new_max: Annotated[int, Meta(ge=1, le=10_000)]


class ServerOutput(RequestParameters, frozen=True, kw_only=True):
    """A part of the journal of the server."""

    styled: bool = False
    offset: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    """The offset of an earlier answer: only the lines after it."""


class AnalyzerOutput(RequestParameters, frozen=True, kw_only=True):
    """The output of an analyzer."""

    task_ID: _TASK
    styled: bool = False
    offset: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    """The offset of an earlier answer: only what was printed since. Without one, the last part."""


def _run_train(parameters: RunTrain) -> _Answer:
    request = SubmitRequest(
        config=task_resources.absolute_path(parameters.config_path, "config_path"),
        tuning=task_resources.absolute_path(parameters.freq_path, "freq_path")
        if parameters.freq_path
        else None,
        description=parameters.description or None,
        name=card_sharing.requested_name(
            parameters.description, no_save=parameters.no_save, use_description=parameters.use_description
        ),
        with_suffix=parameters.no_save,
        options=card_sharing.task_options(parameters),
        command=["POST", "/run_train"],
    )
    return _to_submitted(submit(request))


def _continue_train(parameters: ContinueTrain) -> _Answer:
    request = ContinueRequest(
        package=task_resources.absolute_path(parameters.record_path, "record_path"),
        checkpoint=parameters.checkpoint_ID if parameters.checkpoint_ID >= 0 else None,
        description=parameters.description or None,
        overrides=parameters.overrides,
        command=["POST", "/continue_train"],
    )
    return _to_submitted(submit_continue(request, card_sharing.task_options(parameters)))


def _to_submitted(found: NewTasks) -> _Answer:
    (task,) = found.tasks
    return {
        "task_ID": task.id,
        "label": task.label,
        "package": task.package,
        "run": served_packages.run_id(task.package),
        "notes": list(found.notes),
    }


def _analyze(parameters: AnalyzePackage) -> _Answer:
    resources = SharedCardParameters(memory_consumption=parameters.memory_consumption, CPU=parameters.CPU)
    scripts = parameters.script_path
    request = AnalyzerRequest(
        package=task_resources.absolute_path(parameters.record_path, "record_path"),
        checkpoint=parameters.checkpoint_ID if parameters.checkpoint_ID >= 0 else None,
        untrained=parameters.checkpoint_ID == UNTRAINED_ID,
        scripts=task_resources.absolute_path(scripts, "script_path") if scripts else None,
        options=card_sharing.task_options(resources),
        command=["POST", "/analyze"],
    )
    return _to_submitted(start_analyzer(request))


def _run_experiment(parameters: RunExperiment) -> _Answer:
    call = script_call.run_script(parameters.task_ID, parameters.command)
    return {"analysis": call.analysis, "folder": call.folder, "offset": call.output_offset}


def _analyzer_output(parameters: AnalyzerOutput) -> _Answer:
    path = script_call.find_analyzer(parameters.task_ID).folder / analyzer_folder.OUTPUT
    offset = parameters.offset
    if offset is None:
        offset = max(tail_offset(path, _MAX_LINES), output_size(path) - MAX_BYTES)
    page = event_streams.read_page(path, offset, MAX_BYTES, lambda: False)
    pieces = StyleParser().feed(page.text, final=True)
    return {
        "offset": page.next,
        "text": [list(piece) for piece in pieces]
        if parameters.styled
        else "".join(text for _, text in pieces),
    }


def _del_task(parameters: DeleteTask) -> _Answer:
    task_control.request_stop(parameters.task_ID)
    return {}


def _new_proj(parameters: NewProj) -> _Answer:
    folder = task_resources.absolute_path(parameters.target_dir, "target_dir")
    if parameters.plugins:
        raise no_plugins("plugins", parameters.plugins)
    made = new_project(folder, template="dlnest-mnist" if parameters.MNIST else "dlnest")
    return {"path": str(made.path), "files": made.files}


def _no_plugins(parameters: AddPlugins) -> _Answer:
    raise no_plugins("plugins", parameters.plugins)


def _change_delay(parameters: ChangeDelay) -> _Answer:
    sleep_limit.change_delay(parameters.new_delay)
    return {}


def _change_devices(parameters: ChangeCards) -> _Answer:
    numbers = ",".join(map(str, parameters.new_devices_IDs))
    cards = devices.without_cpu(numbers, setting="new_devices_IDs")
    devices.change(devices.DeviceChange(allowed=cards))
    return {}


def _change_max_tasks(parameters: ChangeMaxTasks) -> _Answer:
    devices.change(devices.DeviceChange(most_per_card=parameters.new_max))
    return {}


def _clear(parameters: NoParameters) -> _Answer:
    request_journal.clear()
    return {}


def _task_info(parameters: NoParameters) -> _Answer:
    numbers = {card.id: card.number for card in devices.show().cards}
    return {"info": [_task_entry(row, numbers) for row in list_tasks(states=(PENDING, *LIVE))[:_MAX_TASKS]]}


def _task_entry(row: TaskRow, numbers: Mapping[str, int | None]) -> _Answer:
    """Returns a task, its cards by the numbers of ``/get_devices_info``; [-1] is the CPU."""
    settings, request = _settings_and_request(row)
    strategy = request.get("strategy")
    is_reading = bool(row.session_folder)
    is_untrained = bool(request.get("untrained"))
    return {
        "ID": row.id,
        "label": row.label,
        "type": _TYPES[TaskKind(row.kind)],
        "status": "Pending" if row.state == PENDING else "Running",
        "state": row.state,
        "reason": row.reason,
        "args": {**settings, "root_file_path": row.package} if settings else {},
        "description": request.get("description") or "",
        "record_path": row.package,
        "devices": [numbers.get(card, card) for card in row.cards] if row.num_cards else [_CPU],
        "memory_consumption": row.memory_mb if row.memory_mb is not None else -1,
        "DDP": strategy == "ddp",
        "multi_GPU": row.num_cards > 1,
        "load_ckpt": not is_untrained if is_reading else row.session is not None and row.session > 1,
        "checkpoint_ID": UNTRAINED_ID if is_untrained else _checkpoint_id(request.get("checkpoint")),
        **({"script_path": request.get("scripts") or ""} if row.kind == TaskKind.ANALYZE else {}),
    }


def _checkpoint_id(requested: Any) -> int:
    return requested if isinstance(requested, int) else -1


def _settings_and_request(row: TaskRow) -> tuple[_Answer, _Answer]:
    """Returns the settings and the newest request of a package; both are empty if the package is damaged, so
    that one package does not fail the whole list."""
    try:
        return _read_settings_and_request(row.package, row.session_folder, row.id, row.session)
    except (RoostError, OSError):
        return {}, {}


@functools.lru_cache(maxsize=_CACHED_SETTINGS)
def _read_settings_and_request(
    package: str, folder: str, task: str, session: int | None
) -> tuple[_Answer, _Answer]:
    """Returns both, cached: they do not change during a session."""
    opened = open_any(Path(package))
    settings = _mask_secrets(opened.settings)
    if folder:
        return settings, sessions.load_json(Path(folder) / session_folder.REQUEST) or {}
    found = opened.sessions()
    return settings, {**opened.request, **(found[-1].request if found else {})}


def _mask_secrets(value: Any, name: str = "") -> Any:
    """Returns settings without the values whose names mark them as secret, as `roost show` does for
    commands."""
    if isinstance(value, dict):
        return {key: _mask_secrets(one, str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_mask_secrets(one, name) for one in value]
    if not isinstance(value, str):
        return value
    return "***" if environment.is_secret(name) else environment.redact(value)


def _devices_info(parameters: NoParameters) -> _Answer:
    used: dict[str, float] = {}
    for row in list_tasks(states=LIVE):
        used |= {card: max(row.started or 0.0, used.get(card, 0.0)) for card in row.cards}
    return {
        "info": [
            {
                "ID": card.number,
                "type": "GPU",
                "is_break": bool(card.trouble),
                "num_tasks": len(card.tasks),
                "running_tasks": [task.id for task in card.tasks],
                "total_memory": card.total_mb,
                "free_memory": card.free_mb,
                "last_use_time": used.get(card.id, 0.0),
            }
            for card in devices.show().cards
            if card.allowed
        ]
    }


def _output(parameters: ServerOutput) -> _Answer:
    found = request_journal.read(parameters.offset)
    lines = [f"{line}\n" for line in found.lines]
    return {
        "offset": found.offset,
        "text": [["", line] for line in lines] if parameters.styled else "".join(lines),
    }


def to_starlette(route: Route, threads: anyio.CapacityLimiter) -> StarletteRoute:
    """Returns the route for the application. A failed operation is answered with status 200, as DLNest
    requires."""

    async def endpoint(request: Request) -> Response:
        parameters: RequestParameters | None = None
        try:
            parameters = form_parameters.parse_parameters(route, request, await request.body())
            found = await anyio.to_thread.run_sync(execute, route, parameters, limiter=threads)
            answer = {"status": "success", **found}
        except Exception as error:  # noqa: BLE001  - the client gets an answer to every error
            refused = error_response.to_http_error(error)
            if refused.status == 500 and not isinstance(error, error_response.HttpError):
                error_response.log_exception(error)
            answer = _failure(refused, parameters)
        return Response(encode_json(answer), media_type="application/json")

    return StarletteRoute(route.path, endpoint, methods=[route.method], name=route.name)


def _failure(refused: error_response.HttpError, parameters: RequestParameters | None) -> _Answer:
    problem = refused.problem
    field = problem.field
    given = field if field is None or parameters is None else _given_parameter(field, parameters)
    whole = RoostError(refused.message, setting=given, where=problem.where, fix=problem.fix)
    return {"status": "error", "error": str(whole), "code": problem.code}


def _given_parameter(field: str, parameters: RequestParameters) -> str:
    """Returns DLNest's name of one of roost's parameters."""
    if field == "name":
        return "description"
    return "new_devices_IDs" if field == "allowed" else field


def _route(
    path: str, summary: str, parameters: type[RequestParameters], run: Callable[[Any], _Answer]
) -> Route:
    method: Literal["GET", "POST"] = "GET" if path.startswith("/get_") else "POST"
    return Route(
        name=path[1:],
        path=path,
        summary=summary,
        parameters=parameters,
        answer=_Answer,
        run=run,
        method=method,
    )


ROUTES: Sequence[Route] = (
    _route("/run_train", "Queue a training.", RunTrain, _run_train),
    _route("/continue_train", "Queue the next session of a package.", ContinueTrain, _continue_train),
    _route("/analyze", "Load a package into an analyzer.", AnalyzePackage, _analyze),
    _route("/run_exp", "Run a script in an analyzer.", RunExperiment, _run_experiment),
    _route("/del_task", "Ask a task to save and end.", DeleteTask, _del_task),
    _route("/new_proj", "Create a project from a template.", NewProj, _new_proj),
    _route("/add_plugins", "Refused: a config names its plugins.", AddPlugins, _no_plugins),
    _route("/change_delay", "Change the longest sleep of the lab's daemon.", ChangeDelay, _change_delay),
    _route("/change_devices", "Change the cards that tasks may use.", ChangeCards, _change_devices),
    _route(
        "/change_max_task_per_device",
        "Change the number of tasks that may share a card.",
        ChangeMaxTasks,
        _change_max_tasks,
    ),
    _route("/clear", "Clear the journal of the server.", NoParameters, _clear),
    _route("/get_task_info", "The tasks that wait or run.", NoParameters, _task_info),
    _route("/get_devices_info", "The cards that tasks may use.", NoParameters, _devices_info),
    _route("/get_DLNest_output", "The journal of the server.", ServerOutput, _output),
    _route("/get_analyze_output", "The output of an analyzer.", AnalyzerOutput, _analyzer_output),
)
FORM_PATHS = frozenset(route.path for route in ROUTES)
"""The paths that also accept forms."""
