"""MNIST, 70,000 handwritten digits of 28x28 pixels: four files, downloaded once."""

from __future__ import annotations

from pathlib import Path

import torch
from Dataset.Idx import read_idx
from torch import Tensor
from torch.utils.data import TensorDataset

import roost

FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}

ADVICE = (
    "set mnist.mirrors to a URL that has the four files (train- and t10k-, images and labels), "
    "file:///some/folder/ works, too; for other files correct mnist.sha256; "
    "or begin with `roost new digits -t digits`, which needs no network"
)


class Dataset(roost.Dataset):
    """Downloads the digits and splits them into training, validation and test."""

    def prepare(self) -> None:
        """Called before `build`. An existing file with the right checksum is not downloaded again."""
        settings = self.args["mnist"]
        for key, name in FILES.items():
            roost.download(
                [f"{mirror.rstrip('/')}/{name}" for mirror in settings["mirrors"]],
                Path(settings["folder"], name),
                sha256=settings["sha256"][key],
                advice=ADVICE,
            )

    def build(self) -> roost.Data:
        """The same split in every run: its generator does not depend on the seed of the run."""
        settings = self.args["mnist"]
        images, labels = self.read("train")
        if not 0 < settings["valid"] < len(labels):
            fix = f"set a number between 0 and {len(labels)}, the number of samples; the rest is for training"
            raise roost.RoostError(
                "the size of the validation set is out of range",
                setting="mnist.valid",
                received=settings["valid"],
                fix=fix,
            )
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(settings["split_seed"]))
        valid, train = order[: settings["valid"]], order[settings["valid"] :]
        return roost.Data(
            # Tensors in memory: roost gathers whole batches from them, faster than from any other data set.
            train=TensorDataset(images[train], labels[train]),
            valid=TensorDataset(images[valid], labels[valid]),
            test=TensorDataset(*self.read("test")),
            info={"classes": int(labels.max()) + 1},
        )

    def read(self, part: str) -> tuple[Tensor, Tensor]:
        """Reads the pictures (N, 1, 28, 28), bytes from 0 to 255, and labels (N,) of "train" or "test"."""
        folder = Path(self.args["mnist"]["folder"])
        images = read_idx(folder / FILES[f"{part}_images"], sample=(28, 28))
        labels = read_idx(folder / FILES[f"{part}_labels"], sample=())
        if len(images) != len(labels):
            raise roost.RoostError(f"{len(images)} pictures and {len(labels)} labels", where=folder)
        return images.unsqueeze(1), labels.long()
