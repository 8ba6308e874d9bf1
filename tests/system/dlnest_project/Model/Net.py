from torch import nn


class Net(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.layers(x)
