"""The exact project of DLNest, trained in this process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roost.base import safetensors_format, state_tree
from roost.config import objects
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import RetentionPolicy
from roost.package.package import PackageFolder
from roost.package.records import PERF
from roost.project.dlnest import run_state
from roost.project.dlnest.project_loading import load_project
from roost.project.dlnest.training_loop import TrainingLoop
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import ALONE

PROJECT = Path(__file__).parent.parent.parent / "system" / "dlnest_project"


def package(root: Path, files: dict[str, str] | None = None, **values: Any) -> PackageFolder:
    """A package of the project, with other values and some other files."""
    merged = {
        **json.loads((PROJECT / "root_config.json").read_text()),
        **json.loads((PROJECT / "training.json").read_text()),
        **values,
    }
    merged.pop("child_jsons")
    made = PackageFolder.create(root, values=merged, request={"kind": "dlnest"})
    for file in PROJECT.rglob("*.py"):
        name = file.relative_to(PROJECT).as_posix()
        target = made.path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((files or {}).get(name) or file.read_text())
    return made


@contextmanager
def loop(made: PackageFolder, *, id: int | None = None, **options: Any) -> Iterator[TrainingLoop]:
    """A session of the package."""
    made.new_session({"overrides": [], "device": "cpu", "project": "/nowhere"})
    session = made.sessions()[-1].number
    checkpoints = Checkpoints(made, RetentionPolicy(fast=9), session=session, asynchronous=False)
    before = Path.cwd()
    os.chdir(made.path)
    try:
        manifest, states, _ = run_state.read(checkpoints, ALONE, id=id)
        state = run_state.project_state(states, ALONE) if manifest is not None else None
        project = load_project(made, parse_dlnest_settings(made.settings), device="cpu", state=state)
        assert project.build()
        settings = {"log_every": 3, "records": made.path / "records", **options}
        yield TrainingLoop(
            project,
            checkpoints=checkpoints,
            state=states if manifest is not None else None,
            session=session,
            **settings,
        )
    finally:
        os.chdir(before)
        objects.unload_project(made.path)


def run(made: PackageFolder, prepare: Callable[[TrainingLoop], None] | None = None, **options: Any) -> str:
    """Runs a session to its end."""
    with loop(made, **options) as found:
        if prepare is not None:
            prepare(found)
        return found.run()


def stopping(
    method: str, number: int, action: Callable[[TrainingLoop], None] | None = None
) -> Callable[[TrainingLoop], None]:
    """Requests a stop, or does something else, in the given call of a method of the runner."""

    def prepare(found: TrainingLoop) -> None:
        original, calls = getattr(found.project.runner, method), [0]

        def called(*arguments: Any) -> None:
            calls[0] += 1
            if calls[0] == number:
                (action or (lambda one: one.request_stop("enough")))(found)
            original(*arguments)

        setattr(found.project.runner, method, called)

    return prepare


def fingerprint(made: PackageFolder) -> dict[str, Any]:
    """What must be equal: the newest state as digests, and every recorded value."""
    newest = made.store().lineage()[-1]
    _, states = checkpoint.read(checkpoint.checkpoint_folder(made.checkpoints, newest.id))
    loop_state = states.pop("loop")
    loop_state["progress"].pop("seconds")
    inexact = loop_state.pop("inexact")
    rows = [
        {name: value for name, value in row.items() if name != "time" and not name.startswith(PERF)}
        for row in made.records().rows
    ]
    return {
        "step": newest.step,
        "epoch": newest.epoch,
        "inexact": inexact,
        "rows": rows,
        "loop": loop_state,
        "log": states["dlnest"]["log_dict"],
        "best": states["dlnest"]["life_cycle"],
        "attributes": {
            f"{part} {name}": _digest(one)
            for part, state in states.items()
            for name, one in state.pop("attributes", {}).items()
        },
        **{name: _digest(state) for name, state in states.items()},
    }


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compares two fingerprints. A resumed run also holds attributes that are as in a new run again."""
    different = {name: (found[name], expected[name]) for name in expected if found[name] != expected[name]}
    assert different.keys() <= {"attributes"}, different
    own, others = found["attributes"], expected["attributes"]
    assert {name: own.get(name) for name in others} == others


def _digest(state: Any) -> str:
    skeleton, leaves = state_tree.pack(state)
    digest = hashlib.sha256(json.dumps(skeleton, sort_keys=True).encode())
    for chunk in safetensors_format.serialize(leaves):
        digest.update(chunk)
    return digest.hexdigest()
