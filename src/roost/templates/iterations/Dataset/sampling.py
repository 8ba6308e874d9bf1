"""The sampling function: it returns whole batches, and has a cursor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Database:
    """Pictures (N, 8, 8) and labels (N,), in the order in which they are drawn.

    Args:
        images: All pictures.
        labels: All labels.
        batch_size: Pictures per batch.
        shift: Largest shift of an augmented picture in pixels, in each direction.
    """

    def __init__(self, images: Tensor, labels: Tensor, *, batch_size: int, shift: int) -> None:
        self.images, self.labels = images.unsqueeze(1), labels
        self.batch_size, self.shift = batch_size, shift
        self.order = torch.arange(len(labels))

    def shuffle(self) -> None:
        """Shuffles the share of this process: of two loader workers, each has every second picture."""
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        own = torch.arange(first, len(self.labels), step)
        self.order = own[torch.randperm(len(own))]

    def state_dict(self) -> dict[str, Any]:
        """Returns the order alone; without this method, every checkpoint would contain all pictures."""
        return {"order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]


def sample_data(db: Database, index: int, augment: bool) -> tuple[dict[str, list[Tensor]], int]:
    """Returns the batch at a cursor, and the next cursor; augmented in training, not in an evaluation.

    roost seeds torch, NumPy and Python before each call by (seed, worker, number of the batch), so that the
    draws do not depend on a process id, and `roost continue` draws the same.
    """
    if augment and index == 0:
        db.shuffle()
    rows = db.order[index : index + db.batch_size]
    images = db.images[rows]
    if augment:
        images = torch.stack([_shifted(image, db.shift) for image in images])
    index += len(rows)
    return {"xs": [images], "ys": [db.labels[rows]]}, index if index < len(db.order) else 0


def _shifted(image: Tensor, shift: int) -> Tensor:
    down, right = torch.randint(-shift, shift + 1, (2,)).tolist()
    padded = torch.nn.functional.pad(image, [shift] * 4)
    return padded[:, shift + down : shift + down + 8, shift + right : shift + right + 8]
