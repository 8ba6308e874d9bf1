"""Trains with dropout, and validates without eval(), as the example in DLNest's README does: the
statistics of the batch norm change in a validation, too."""

import torch
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch
from Net import Net
from torch import nn


class Runner(RunnerBaseTorch):
    def init(self, args, datasetInfo=None):
        self.model = Net(datasetInfo["inputs"])
        self.loss = nn.CrossEntropyLoss()
        self.smoothed = 0.0

    def initOptimizer(self):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.8)

    def initLog(self):
        self.seen = {"loss": [], "smoothed": [], "acc": [], "lr": [], "pictures": 0}
        return self.seen

    def runOneStep(self, data, log, iter, epoch):
        self.seen = log
        self.optimizer.zero_grad()
        x, y = data
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.smoothed = 0.9 * self.smoothed + 0.1 * loss.item()
        log["loss"].append(loss.item())
        log["smoothed"].append(self.smoothed)

    def visualize(self, log, iter, epoch):
        log["pictures"] += 1

    def validationInit(self):
        self.hits = self.total = 0

    def validateABatch(self, data, iter):
        x, y = data
        with torch.no_grad():
            self.hits += (self.model(x).argmax(1) == y).sum().item()
        self.total += len(y)

    def validationAnalyze(self, log):
        log["acc"].append(self.hits / max(self.total, 1))
