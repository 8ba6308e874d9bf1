"""The sampling function."""

from __future__ import annotations

from typing import Any

import torch


def data_sampling_func(system: Any, db: Any, index: int, data_aug: bool = True) -> tuple[Any, int]:
    """Returns the batch at a cursor, and the next cursor."""
    if index == 0 and data_aug:
        db.shuffle_inds()
    pictures, labels = torch.zeros(system.batch_size, 1, db.size, db.size), []
    for number in range(system.batch_size):
        label = int(db.db_inds[index]) % 2
        pictures[number, :, :, label * db.size // 2] = 1 + 0.1 * system.data_rng.rand()
        labels.append(label)
        index = (index + 1) % len(db.db_inds)
    return {"xs": [pictures], "ys": [torch.tensor(labels)]}, index
