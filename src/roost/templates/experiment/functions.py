"""What the configs need and no library has."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor

import roost


def noisy_digits(*, noise: float) -> Mapping[str, np.ndarray]:
    """The digits as scikit-learn gives them, (N, 8, 8) from 0 to 16, under noise that is always the same."""
    digits = load_digits()
    drawn = np.random.default_rng(0).normal(scale=16 * noise, size=digits.images.shape)
    return {"images": (digits.images + drawn).clip(0, 16), "target": digits.target}


def right(scores: Tensor, labels: Tensor) -> Tensor:
    """(B,) 1 where the digit was told, else 0; the mean is the accuracy."""
    return (scores.argmax(1) == labels).float()


def show(runner: roost.Runner, batch: list[Tensor]) -> Mapping[str, roost.Media]:
    """The pictures with what they are taken for, and how sure the model is of each."""
    images, labels = batch
    scores = runner.model(images)
    media = {"certainty": roost.Media("histogram", scores.softmax(1).amax(1))}
    if find_spec("matplotlib") is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 5.6), layout="constrained")
        for axes, image, label, guess in zip(
            figure.subplots(4, 4).flat, images, labels.tolist(), scores.argmax(1).tolist(), strict=False
        ):
            axes.imshow(image[0].cpu().numpy(), cmap="gray_r")
            axes.set_title(f"{label}" if guess == label else f"{label}, not {guess}", fontsize=9)
            axes.set_axis_off()
        media["digits"] = figure
    return media
