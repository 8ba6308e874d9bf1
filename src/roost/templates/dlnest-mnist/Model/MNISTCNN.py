"""A small CNN for pictures of 28x28 pixels."""

import itertools

from torch import nn


class MNISTCNN(nn.Module):
    """Two convolutions and two linear layers; (N, 1, 28, 28) to (N, classes)."""

    def __init__(self, channels, hidden, dropout, classes):
        super().__init__()
        layers = []
        for before, after in itertools.pairwise(channels):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        side = 28 // 2 ** (len(channels) - 1)
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(channels[-1] * side * side, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )

    def forward(self, x):
        return self.head(self.features(x))
