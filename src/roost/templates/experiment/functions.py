"""Functions that the configs use and no library has."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor

import roost


def noisy_digits(*, noise: float) -> Mapping[str, np.ndarray]:
    """Returns the digits of scikit-learn, (N, 8, 8) from 0 to 16, with noise that is always the same."""
    digits = load_digits()
    drawn = np.random.default_rng(0).normal(scale=16 * noise, size=digits.images.shape)
    return {"images": (digits.images + drawn).clip(0, 16), "target": digits.target}


def right(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns (B,): 1 if the prediction is correct, else 0; the mean is the accuracy."""
    return (scores.argmax(1) == labels).float()


def show(runner: roost.Runner, batch: list[Tensor]) -> Mapping[str, roost.Media]:
    """Draws the pictures with their predictions, and a histogram of the model's certainty."""
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
