"""In the style of 0.3.0: registered in so many words, and validated as a whole."""

import numpy as np
import torch
from DLNest.Common.ModelBaseTorch import ModelBaseTorch
from parts import make
from torch import nn


class Classifier(ModelBaseTorch):
    def __init__(self, _envType="CPU", rank=-1, worldSize=-1):
        super().__init__(_envType=_envType, rank=rank, worldSize=worldSize)
        assert self._envType in ("CPU", "DDP") and self._rank == rank

    def init(self, args, datasetInfo=None):
        net = make(datasetInfo["classes"])
        self.net = self.register(net)
        self.loss = nn.CrossEntropyLoss()

    def initOptimizer(self):
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.7)

    def initLog(self):
        return {"loss": [], "acc": [], "seen": 0}

    def runOneStep(self, data, log, iter, epoch):
        assert isinstance(data, list)
        self.net.train()
        self.net.zero_grad()
        x, y = data
        loss = self.loss(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        log["loss"].append(self._reduceMean(loss.detach()).item())
        log["seen"] += len(y)

    def validate(self, valLoader, log):
        self.net.eval()
        hits = []
        with torch.no_grad():
            for x, y in valLoader:
                hits.append((self.net(x).argmax(1) == y).float().mean().item())
        log["acc"].append(np.mean(hits))
