"""A dataset of features in a text file: a name, a label and the length of each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class FeatDataset(torch.utils.data.Dataset[Any]):
    """Has its samples by name, as a dataset of SpeeChain."""

    def __init__(self, main_data: dict[str, str], selected: list[Any] | None = None) -> None:
        with open(main_data["feat"]) as file:
            self.main_data = {name: (int(label), int(size)) for name, label, size in map(str.split, file)}

    def get_data_index(self) -> list[str]:
        return list(self.main_data)

    def __getitem__(self, index: str) -> dict[str, Any]:
        label, size = self.main_data[index]
        return {"feat": torch.full((size, 4), float(2 * label - 1)), "label": label}

    def collate_fn(self, batch: list[dict[str, Any]]) -> dict[str, Tensor]:
        feats = pad_sequence([one["feat"] for one in batch], batch_first=True)
        return {"feat": feats, "label": torch.tensor([one["label"] for one in batch])}
