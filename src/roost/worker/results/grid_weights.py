"""The weights of a grid: found once, when the grid is made, and loaded into the Runner before their cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import CheckpointError, NotFound
from roost.evaluation import cell as cells
from roost.package.checkpoints import checkpoint, selection
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.weight_selectors import WeightSelector
from roost.package.package import PackageFolder
from roost.package.results.evaluations.evaluation_folder import GridCheckpoint
from roost.project.contract import Runner
from roost.train.model.module_state import ModuleState
from roost.train.weights import weight_files
from roost.train.weights.weight_loader import WeightFit
from roost.worker.results import weight_mean
from roost.worker.results.weight_mean import WeightMean


def find_weights(package: PackageFolder, selector: WeightSelector) -> GridCheckpoint:
    """Returns the weights that a selector means now. Prints it if there are fewer checkpoints than it
    requests.

    Raises:
        NotFound: There is no such checkpoint.
        CheckpointError: A file of weights cannot be read.
    """
    if selector.file is not None:
        source = weight_files.read(Path(selector.file))
        return GridCheckpoint(name=selector.name, file=selector.file, sha256=source.sha256)
    chosen = selector.checkpoints
    assert chosen is not None
    ids = selection.candidates(package, chosen)[: chosen.count]
    if len(ids) < chosen.count:
        has = "there is 1" if len(ids) == 1 else f"there are {len(ids)}"
        print(f"{selector.name} requests {chosen.count} checkpoints, but {has}", flush=True)
    manifests = [
        checkpoint.read_manifest(checkpoint.checkpoint_folder(package.checkpoints, id)) for id in ids
    ]
    digest = _mean_digest(manifests, selector.average)
    return GridCheckpoint(name=selector.name, ids=ids, average=selector.average, sha256=digest)


def load_weights(package: PackageFolder, weights: GridCheckpoint, runner: Runner) -> None:
    """Loads weights of a grid into a Runner.

    Raises:
        NotFound: A checkpoint is gone.
        CheckpointError: The weights have changed since the grid was made, or those of a file do not fit the
            Runner.
    """
    if weights.file is not None:
        _load_file(weights, Path(weights.file), runner)
    else:
        _load_checkpoints(package, weights, runner)


def describe_weights(weights: GridCheckpoint) -> str:
    """Returns what weights of a grid are, for a line of output."""
    if weights.file is not None:
        return f"weights of {weights.file}"
    numbers = ", ".join(map(str, weights.ids))
    if len(weights.ids) > 1:
        return f"the mean of checkpoints {numbers}"
    average = f", the average {weights.average}" if weights.average else ""
    return f"weights of checkpoint {numbers}{average}"


def _load_checkpoints(package: PackageFolder, weights: GridCheckpoint, runner: Runner) -> None:
    mean, module = WeightMean(), None
    for id in weights.ids:
        path = checkpoint.checkpoint_folder(package.checkpoints, id)
        try:
            info, found = weight_mean.read_weights(path, average=weights.average)
        except (NotFound, CheckpointError, FileNotFoundError) as error:
            if path.exists():
                raise
            raise NotFound(
                f"checkpoint {id}, which {weights.name} meant when the evaluation began, is gone",
                where=package.path,
                fix="give the evaluation another --name; keep checkpoints with a track or a hold",
            ) from error
        module = module or found
        mean.add(info, dict(found["state"]))
    if _mean_digest(mean.infos, weights.average) != weights.sha256:
        raise CheckpointError(
            f"the weights of {weights.name} have changed since the evaluation began",
            where=package.path,
            fix="give the evaluation another --name: what is there is kept",
        )
    assert module is not None
    ModuleState(runner).load_state_dict({**module, "state": mean.weights()})


def _load_file(weights: GridCheckpoint, path: Path, runner: Runner) -> None:
    source = weight_files.read(path)
    if source.sha256 != weights.sha256:
        raise CheckpointError(
            "the file has changed since the evaluation began",
            where=path,
            fix="give the evaluation another --name",
        )
    fit = WeightFit(runner, source.weights, {})
    if wrong := fit.report.problems(missing=True):
        raise CheckpointError(
            f"the weights do not fit the Runner: {'; '.join(wrong)}",
            where=path,
            fix="name a file with the weights of this Runner: `roost export --weights` makes one",
        )
    fit.load()


def _mean_digest(manifests: Sequence[Manifest], average: str | None) -> str:
    """Returns the digest of the mean of checkpoints."""
    parts = [str(_weights_digest(one, average)) for one in manifests]
    return parts[0] if len(parts) == 1 else cells.joined_digest(parts)


def _weights_digest(manifest: Manifest, average: str | None) -> str | None:
    digest, _ = checkpoint.tensor_digest(manifest, "model")
    if average is None:
        return digest
    of_hooks, _ = checkpoint.tensor_digest(manifest, "trainer")
    return cells.joined_digest([str(digest), str(of_hooks), average])
