"""A project whose Runner predicts, for the tests of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from roost.package.package import PackageFolder
from tests.project.projects import DATASET, RUNNER
from tests.project.trained import trained

PREDICTS = (
    RUNNER
    + """
    def predict(self, batch):
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        assert not self.training
        score = self.net(x).squeeze(1)
        assert not score.requires_grad
        names = ["yes" if one > 0 else "no" for one in score]
        return {"score": score, "label": names, "features": x.repeat(1, 5)}
"""
)

READS = (
    DATASET
    + """
    def predict(self, source):
        from pathlib import Path
        if source == "none":
            return None
        if source == "stream":
            return _Stream()
        lines = Path(source).read_text().splitlines()
        return [torch.tensor([float(word) for word in line.split()]) for line in lines]

class _Stream:
    def __iter__(self):
        return (torch.full((4,), float(i)) for i in range(11))
"""
)


def predicting(folder: Path, **options: Any) -> PackageFolder:
    """A package below ``folder``, trained, whose sets are 40 samples each."""
    return trained(folder, **{"runner": PREDICTS, **options})


def rows() -> torch.Tensor:
    """(40, 4) the samples of its sets."""
    return torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
