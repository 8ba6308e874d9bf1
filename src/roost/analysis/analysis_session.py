"""`AnalysisSession`: the argument ``self`` of an analysis script."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roost.analysis.analysis_folder import SavedFiles
from roost.base.errors import ContractError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.project import data_loaders
from roost.project.contract import Data, Dataset, Runner
from roost.project.loaded_model import LoadedExperiment
from roost.train.reporting import array_bytes
from roost.train.reporting.media_files import encode


class AnalyzedPackage:
    """What every analysis has, whatever the kind of the package.

    Attributes:
        package: The package. Its training may still run: only read.
        checkpoint: The checkpoint that was loaded (id, step, epoch, metrics); None if untrained.
        device: The device of the runner.
    """

    def __init__(
        self,
        package: PackageFolder,
        *,
        checkpoint: Manifest | None,
        device: torch.device,
        seed: int,
    ) -> None:
        self.package, self.checkpoint, self.device = package, checkpoint, device
        self._seed = seed
        self._files: SavedFiles

    def _begin(self, files: SavedFiles) -> None:
        """Called before each script. What an earlier one has stored in this object stays.

        Args:
            files: The folder of this analysis.
        """
        self._files = files

    def _end(self) -> None:
        """Called after the last script."""

    def save(self, name: str, media: Any) -> Path:
        """Stores a figure, text or array in the folder of this analysis and returns its path.

        Args:
            name: File name, with or without suffix; if the file exists, a number is added.
            media: A matplotlib figure (png), a string (txt), `roost.Media`, or a tensor or array (npy).

        Raises:
            ContractError: The name is not a file name, or the object cannot be stored.
            OSError: The file cannot be written.
        """
        try:
            if isinstance(media, torch.Tensor):
                media = array_bytes.as_array(media)
            suffix, data = (
                ("npy", array_bytes.npy_bytes(media)) if isinstance(media, np.ndarray) else encode(media)
            )
        except ContractError as error:
            raise ContractError(
                error.message, setting=f"save({name!r})", received=type(media).__name__, fix=error.fix
            ) from None
        return self._files.write(name, suffix, data)


class AnalysisSession(AnalyzedPackage):
    """A trained package, loaded for analysis.

    ::

        # AnalyzeScripts/accuracy.py: roost analyze runs/NAME -s accuracy
        def experience(self):
            hits = []
            with torch.no_grad():                        # gradients are kept otherwise, for saliency maps
                for images, labels in self.batches("valid"):
                    hits.append(self.runner.net(images).argmax(1) == labels)
            self.save("curve", figure_of(self.log["valid/loss"]))
            return {"accuracy": torch.cat(hits).float().mean()}

    The return value of the function is stored in the package and printed. Printed output is stored too.

    Attributes:
        args: All settings, your own included, as the Runner gets them.
        runner: The project's Runner, built by the package's own code, with the weights of `checkpoint`, in
            evaluation mode and on `device`. No optimizer is built.
        model: The same object, by its name in DLNest.
        dataset: The project's Dataset.
        data: The `roost.Data` that it built: the sets themselves.
        log: What the run recorded: (steps, values) by metric, such as ``self.log["valid/loss"]``.
        package: The package. Its training may still run: only read.
        checkpoint: The checkpoint of the weights (id, step, epoch, metrics); None if untrained.
        device: The device of the runner.
    """

    def __init__(self, package: PackageFolder, loaded: LoadedExperiment) -> None:
        assert loaded.dataset is not None and loaded.data is not None
        super().__init__(
            package,
            checkpoint=loaded.checkpoint,
            device=loaded.runner.device,
            seed=loaded.settings.seed,
        )
        self.args: Mapping[str, Any] = loaded.args
        self.runner: Runner = loaded.runner
        self.model: Runner = loaded.runner
        self.dataset: Dataset = loaded.dataset
        self.data: Data = loaded.data
        self._loaded = loaded

    @functools.cached_property
    def log(self) -> Mapping[str, tuple[list[int], list[float]]]:
        """What the run has recorded up to the first access by this script."""
        columns = self.package.records()
        return {**columns.series, **columns.stats}

    def _begin(self, files: SavedFiles) -> None:
        super()._begin(files)
        self.__dict__.pop("log", None)  # the training may have gone on since
        self.runner.eval().zero_grad()

    def batches(self, split: str = "valid") -> Iterator[Any]:
        """Returns the batches of a split as in an evaluation: in the order of the set, each sample once, with
        the project's collate and the batch size of the split, on `device`. ``data.limit_valid_batches``
        applies.

        Args:
            split: train, valid or test; ``train/NAME`` or ``valid/NAME`` where there are several.

        Raises:
            NotFound: There is no such set.
        """
        sets = data_loaders.named_sets(self.data)
        if split not in sets:
            fix = f"{did_you_mean(split, sets)}name one of: {', '.join(sets)}"
            raise NotFound("there is no such set", setting="batches(split)", received=split, fix=fix)
        loader = data_loaders.evaluation_loader(self.data, self._loaded.settings, split, device=self.device)
        return (self.runner.to_device(batch.value) for batch in loader.once() if batch.num_samples)
