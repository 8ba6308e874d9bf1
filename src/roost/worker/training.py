"""One session of training, from a package and a session number to its end."""

from __future__ import annotations

from typing import Any

import msgspec

from roost.base import durable
from roost.config.settings import Settings
from roost.package import checkpoint, environment, initial_weights
from roost.package.package import Package
from roost.package.sessions import Session
from roost.project import assemble, native
from roost.project.device import choose_device
from roost.train.trainer import Trainer
from roost.worker import determinism
from roost.worker.initialize import Initialize
from roost.worker.stop import StopSignals


def train(package: Package, session: Session, stop: StopSignals) -> str:
    """Trains; gives "finished" or the reason of the stop.

    Raises:
        RoostError: The config, the project or a checkpoint is wrong.
        Exception: Whatever the project's code raises.
    """
    request = session.request
    device = choose_device(str(request.get("device", "auto")))
    project = str(request.get("project", ""))
    _, settings = native.resolved(package, project)
    # Without a checkpoint nothing went before that the rest must fit: it begins anew, here.
    first = environment.began_on(package.path) if checkpoint.ids(package.checkpoints) else None
    determinism.apply(settings, device=device, first=first)
    trainer = build(package, session, project, device)
    compare_stack(package, trainer, device, settings, first)
    for reason in [*_reasons(session), *determinism.inexact(device)]:
        trainer.note_inexact(reason)
    stop.attach(trainer)
    return trainer.fit(checkpoint=session.checkpoint)


def build(package: Package, session: Session, project: str, device: str) -> Trainer:
    """The trainer of a package, built on ``device``."""
    begins = not checkpoint.ids(package.checkpoints)
    if not begins and package.settings().get("init_from") != package.args.get("init_from"):
        print("init_from is not read: the run goes on from a checkpoint", flush=True)
    experiment = native.load(package, project=project, device=device, begins=begins)
    if experiment.began_with:
        initial_weights.write(package.path, experiment.began_with)
    if session.request.get("initialize") and begins:
        experiment.hooks.append(Initialize(package))
    return assemble.assemble(experiment, package, session=session.number)


def _reasons(session: Session) -> list[str]:
    """Why the operation that asked for this session holds the rest of the run for inexact."""
    reasons = [str(reason) for reason in session.request.get("inexact") or []]
    if session.request.get("force") and not reasons:
        reasons = [f"session {session.number} was forced to go on with a changed config or code"]
    return reasons


def compare_stack(
    package: Package, trainer: Trainer, device: str, settings: Settings, first: dict[str, Any] | None
) -> None:
    """Writes environment.json in the first session; later ones note what differs from it."""
    if first is None:
        now = environment.capture(device, seed=settings.seed, determinism=settings.determinism)
        body = {**now, "git": package.request.get("git")}
        data = msgspec.json.format(msgspec.json.encode(body), indent=2)
        durable.write(package.path / environment.NAME, data)
    else:
        for reason in environment.differences(first["stack"], environment.stack(device)):
            trainer.note_inexact(reason)
