from torch import nn


def make(classes):
    first = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*first, nn.Linear(8, classes))
