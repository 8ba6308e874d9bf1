"""The network, its optimizer, and a step of training."""

import torch
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch
from torch import nn


class Runner(RunnerBaseTorch):
    def init(self, args: dict, datasetInfo: dict | None = None):
        """Modules are found as attributes: they are moved to the device, saved, and shared by ranks."""
        hidden = args["model_config"]["hidden"]
        self.model = nn.Sequential(nn.Linear(datasetInfo["inputs"], hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.loss = nn.BCEWithLogitsLoss()

    def initOptimizer(self):
        """Optimizers and schedulers are found as attributes, too, and saved."""
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.03)

    def initLog(self):
        """What is appended to these lists becomes the metrics of the run."""
        return {"loss": [], "accuracy": []}

    def runOneStep(self, data, log: dict, iter: int, epoch: int):
        self.model.zero_grad()
        x, y = data
        loss = self.loss(self.model(x).squeeze(1), y)
        loss.backward()
        self.optimizer.step()
        log["loss"].append(self._reduceMean(loss.detach()).item())

    def visualize(self, log: dict, iter: int, epoch: int):
        pass

    def validationInit(self):
        self.correct, self.total = 0.0, 0

    def validateABatch(self, data, iter: int):
        x, y = data
        with torch.no_grad():
            hits = ((self.model(x).squeeze(1) > 0) == (y > 0)).float().mean()
        self.correct += self._reduceMean(hits).item()
        self.total += 1

    def validationAnalyze(self, log: dict):
        log["accuracy"].append(self.correct / self.total)
