"""The predict task: runs `Runner.predict` over a set, with the weights of one checkpoint."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from roost.analysis import analysis_folder
from roost.base import durable
from roost.base.errors import ContractError
from roost.config.settings import Settings
from roost.config.step_modes import STEP_MODES
from roost.package import sessions
from roost.package.checkpoints import selection
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.live_progress import PHASES, ProgressFile
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.package.seals import session_seal
from roost.package.setting_locations import setting_locations
from roost.project import native_project
from roost.project.contract import Runner
from roost.project.device_choice import choose_device
from roost.project.loaded_model import LoadedExperiment, load_experiment
from roost.train.evaluation import split_evaluation
from roost.train.failures.step_report import naming_samples
from roost.train.model.module_state import ModuleState
from roost.train.step import precision, seeding
from roost.train.step.compilation import EvaluationFunction, compiled_evaluation
from roost.worker import torch_settings
from roost.worker.analyze_task import initial_environment
from roost.worker.caller_watch import end_with_caller
from roost.worker.results import prediction_source, weight_mean
from roost.worker.results.prediction_source import PredictionSource
from roost.worker.results.prediction_writer import PredictionWriter


def predict(package: PackageFolder, folder: Path, session: int | None = None) -> str:
    """Predicts as the request in ``folder`` describes, and returns "finished".

    Args:
        package: The package.
        folder: Of a task of the lab its session folder, which becomes the prediction; else a folder from
            which the finished prediction is moved.
        session: The number of the session, of a task of the lab; None: the caller waits for the result.

    Raises:
        RoostError: The package cannot be loaded, there is no such data, or `predict` returns a wrong value.
        BaseException: An error of the project's code.
    """
    if session is not None and predictions.read(folder) is not None:
        return "finished"  # by an attempt that was killed before it could report that
    began = time.time()
    request = sessions.load_json(folder / analysis_folder.REQUEST) or {}
    if session is None:
        end_with_caller(request)
    else:  # of an attempt that was killed
        durable.discard(folder / predictions.UNFINISHED)
    project, device = request["project"], request["device"]
    _, settings = native_project.resolve_settings(package, project)
    torch_settings.apply(settings, device=choose_device(device), first=initial_environment(package))
    loaded = load_experiment(package, untrained=True, device=device, project=project)
    _require_predict(loaded.runner)
    info = _load_weights(package, loaded.runner, request)
    found = _source(loaded, request, setting_locations(package))
    numbers = settings.evaluation_precision or settings.precision
    precision.require_supported(numbers, loaded.runner.device, setting="evaluation_precision")
    seeding.seed_all(seeding.mix(settings.seed, "predict"))
    durable.make_folder(folder / predictions.UNFINISHED)
    with (
        PredictionWriter(folder / predictions.UNFINISHED) as written,
        split_evaluation.evaluation_mode(loaded.runner),
        precision.autocast_context(numbers, loaded.runner.device),
    ):
        function = _prediction_function(loaded.runner, settings)
        _run(
            loaded.runner,
            function,
            found,
            written,
            ProgressFile(folder / "progress"),
            request["limit"],
        )
    meta = predictions.PredictionMeta(
        package=package.path.name,
        checkpoint=info.id,
        step=info.step,
        epoch=info.epoch,
        averaged=request["averaged"],
        source=found.name,
        count=written.count,
        values=written.values(),
        device=str(loaded.runner.device),
        precision=str(numbers),
        seconds=round(time.time() - began, 3),
        created=round(began, 3),
        command=request["command"],
    )
    body = msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n"
    durable.write_new(folder / predictions.UNFINISHED / predictions.META_FILE, [body])
    session_seal.write_folder_seal(folder / predictions.UNFINISHED)
    if session is not None:
        predictions.commit_into(folder / predictions.UNFINISHED, folder)
        return "finished"
    output = Path(request["output"]) if request["output"] else None

    def announce(final: Path) -> None:
        durable.write(folder / analysis_folder.RESULT, json.dumps({"folder": str(final)}).encode())

    # Last: no error after it is a failure of the prediction.
    predictions.commit(folder / predictions.UNFINISHED, folder.parent, output, announce=announce)
    return "finished"


def _require_predict(runner: Runner) -> None:
    if type(runner).predict is Runner.predict:
        runner.predict(None)  # raises: not implemented


def _load_weights(package: PackageFolder, runner: Runner, request: Mapping[str, Any]) -> Manifest:
    notes: list[str] = []
    read = functools.partial(weight_mean.read_weights, average=request["averaged"])
    (found,) = selection.load_each(package, selection.from_json(request["chosen"]), read, notes)
    info, state = found
    for line in notes:
        print(line, flush=True)
    ModuleState(runner).load_state_dict(dict(state))
    average = f", the average {request['averaged']}" if request["averaged"] else ""
    print(f"weights of checkpoint {info.id}, step {info.step}{average}; {runner.device}", flush=True)
    return info


def _source(loaded: LoadedExperiment, request: Mapping[str, Any], where: Any) -> PredictionSource:
    assert loaded.dataset is not None and loaded.data is not None
    if limit := prediction_source.ignored_limit(loaded.settings.data, request["source"]):
        print(f"{limit} is not used: every sample is predicted", flush=True)
    return prediction_source.open_source(
        request["source"],
        loaded.dataset,
        loaded.data,
        _unlimited_settings(loaded.settings, request),
        folder=Path(request["folder"]),
        device=loaded.runner.device,
        where=where,
    )


def _unlimited_settings(settings: Settings, request: Mapping[str, Any]) -> Settings:
    return prediction_source.without_limits(
        settings, batch_size=request["batch_size"], num_workers=request["num_workers"]
    )


def _prediction_function(runner: Runner, settings: Settings) -> EvaluationFunction:
    """Returns `Runner.predict` in the step mode of the run."""
    if not STEP_MODES[settings.step_mode].compiles:
        return runner.predict
    return compiled_evaluation(runner, runner.predict, "predict", dynamic=settings.compile_dynamic)


def _run(
    runner: Runner,
    predict: EvaluationFunction,
    found: PredictionSource,
    written: PredictionWriter,
    board: ProgressFile,
    limit: int | None,
) -> None:
    total = min([n for n in (found.num_samples, limit) if n is not None], default=0)
    batches = found.batches
    began, first = time.monotonic(), 0
    try:
        with closing(batches.once()) as passing:
            for number, (value, num_samples, *_) in enumerate(passing):
                if not num_samples:  # its samples were left out, but keep their indices
                    first += len(batches.sample_indices(0, number, 1))
                    continue
                with naming_samples(found.name, range(first, first + num_samples)):
                    output = predict(runner.to_device(value))
                    most = None if limit is None else limit - written.count
                    written.add(output, num_samples, first=first, most=most)
                first += num_samples
                _publish(board, number + 1, written.count, total, time.monotonic() - began)
                if written.count == limit:
                    break
    finally:
        batches.close()
    if not written.count:
        raise ContractError(
            f"{found.name} has nothing to predict: it gives no sample", fix="check the data that it reads"
        )


def _publish(board: ProgressFile, number: int, count: int, total: int, seconds: float) -> None:
    fraction = count / total if total else 0.0
    phase = PHASES.index("validating")
    board.publish(number, 0, number, 0, 0, phase, count, seconds, count / max(seconds, 1e-9), fraction)
