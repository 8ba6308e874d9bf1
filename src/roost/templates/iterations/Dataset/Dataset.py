"""The UCI digits, 1,797 pictures of 8x8 pixels: they come with scikit-learn, nothing is downloaded."""

from __future__ import annotations

import torch
from Dataset.sampling import Database, sample_data
from sklearn.datasets import load_digits

import roost


class Dataset(roost.Dataset):
    """Three databases with the same sampling function."""

    def build(self) -> roost.Data:
        """The same split in every run: its generator does not depend on the seed of the run."""
        settings = self.args["db"]
        pixels, labels = load_digits(return_X_y=True)
        images = torch.from_numpy(pixels).float().reshape(-1, 8, 8) / 16
        targets = torch.from_numpy(labels).long()
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(settings["split_seed"]))
        train, valid, test = (
            Database(images[rows], targets[rows], batch_size=settings["batch_size"], shift=settings["shift"])
            for rows in order.split([1280, 160, 357])
        )
        return roost.Data(
            train=batches(train), valid=batches(valid), test=batches(test), info={"classes": 10}
        )


def batches(db: Database) -> roost.Sampled:
    """Returns a database as batches; ``length`` is their number in an epoch and in an evaluation."""
    return roost.Sampled(sample_data, db, length=-(-len(db.labels) // db.batch_size))
