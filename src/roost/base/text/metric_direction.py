"""Whether smaller or larger values of a metric are better, by the words of its name."""

from __future__ import annotations

import re
from typing import Literal

# fmt: off
_SMALLER_IS_BETTER = frozenset({
    "loss", "error", "errors", "err", "perplexity", "ppl", "mse", "mae", "rmse", "nll", "bpc", "bpd", "wer",
    "cer", "ter", "eer", "fid", "distance",
})
_LARGER_IS_BETTER = frozenset({
    "accuracy", "acc", "top1", "top5", "f1", "auc", "auroc", "precision", "recall", "map", "iou", "miou",
    "dice", "bleu", "rouge", "psnr", "ssim", "r2", "reward", "return", "correct",
})
# fmt: on
_WORD = re.compile(r"[A-Za-z0-9]+")


def usual_mode(name: str) -> Literal["min", "max"] | None:
    """Returns whether smaller or larger values of a metric are better; None where its name does not say."""
    words = {word.lower() for word in _WORD.findall(name.rpartition("/")[2])}
    if words & _SMALLER_IS_BETTER:
        return "min"
    return "max" if words & _LARGER_IS_BETTER else None
