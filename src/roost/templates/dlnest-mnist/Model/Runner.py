"""The network, its optimizer, and a step of training."""

import torch
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch
from MNISTCNN import MNISTCNN  # a file beside this one, which other_file_paths names
from torch import nn


class Runner(RunnerBaseTorch):
    def init(self, args: dict, datasetInfo: dict | None = None):
        """Modules are found as attributes: they are moved to the device, saved, and shared by ranks."""
        self.settings = args["model_config"]
        self.model = MNISTCNN(
            self.settings["channels"],
            self.settings["hidden"],
            self.settings["dropout"],
            datasetInfo["classes"],
        )
        self.loss = nn.CrossEntropyLoss()

    def initOptimizer(self):
        """Optimizers and schedulers are found as attributes, too, and saved."""
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.settings["lr"])
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.7)

    def initLog(self):
        """What is appended to these lists becomes the metrics of the run."""
        return {"loss": [], "acc": [], "lr": []}

    def runOneStep(self, data, log: dict, iter: int, epoch: int):
        self.model.train()
        self.model.zero_grad()
        x, y = data
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        log["loss"].append(self._reduceMean(loss.detach()).item())

    def visualize(self, log: dict, iter: int, epoch: int):
        print(f"epoch {epoch}, step {iter}: loss {log['loss'][-1]:.4f}")

    def validationInit(self):
        self.model.eval()
        self.totalCorrect, self.total = 0.0, 0

    def validateABatch(self, data, iter: int):
        x, y = data
        with torch.no_grad():
            correct = (self.model(x).argmax(1) == y).float().mean()
        self.totalCorrect += self._reduceMean(correct).item()
        self.total += 1

    def validationAnalyze(self, log: dict):
        log["acc"].append(self.totalCorrect / self.total)
