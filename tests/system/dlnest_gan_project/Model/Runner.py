"""A GAN with an encoder: three optimizers, of which the generator's steps every second time."""

import sys
from pathlib import Path

import numpy as np
import torch
from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch

sys.path.append(str(Path(__file__).parent.parent / "Model"))

from nets.layers import mlp
from torch import nn


class GanRunner(RunnerBaseTorch):
    def init(self, args, datasetInfo=None):
        config = args["model_config"]
        self.config, self.size = config, datasetInfo["size"]
        self.generator = mlp(config["latent"], config["hidden"], self.size)
        self.discriminator = mlp(self.size, config["hidden"], 1)
        self.encoder = self.register(mlp(self.size, config["hidden"], config["latent"]), syncBN=False)
        self.loss = nn.BCEWithLogitsLoss()

    def initOptimizer(self):
        lr = self.config["lr"]
        self.g = torch.optim.Adam(self.generator.parameters(), lr=lr["generator"], betas=(0.5, 0.99))
        self.d = torch.optim.Adam(self.discriminator.parameters(), lr=lr["discriminator"])
        self.e = torch.optim.SGD(self.encoder.parameters(), lr=lr["encoder"], momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.d, 1, 0.5)

    def initLog(self):
        return {"d": [], "g": [], "e": [], "valid": {"distance": []}, "note": "a text"}

    def runOneStep(self, data, log, iter, epoch):
        points, more = data
        assert isinstance(data, tuple) and len(more["numbers"]) == len(points)
        made = self.generator(torch.randn(len(points), self.config["latent"]))
        self.d.zero_grad()
        real, fake = self.discriminator(points), self.discriminator(made.detach())
        loss = self.loss(real, torch.ones_like(real)) + self.loss(fake, torch.zeros_like(fake))
        loss.backward()
        self.d.step()
        log["d"].append(np.float32(self._reduceMean(loss.detach()).item()))
        if iter % 2 == 1:
            self.g.zero_grad()
            fake = self.discriminator(made)
            loss = self.loss(fake, torch.ones_like(fake))
            loss.backward()
            self.g.step()
            log["g"].append(np.float64(self._reduceMean(loss.detach()).item()))
        self.e.zero_grad()
        loss = (self.generator(self.encoder(points)) - points).square().mean()
        loss.backward()
        self.e.step()
        log["e"].append(self._reduceMean(loss.detach()))

    def visualize(self, log, iter, epoch):
        pass

    def validationInit(self):
        self.distances = []

    def validateABatch(self, data, iter):
        points, _ = data
        with torch.no_grad():
            self.distances.append((self.generator(self.encoder(points)) - points).norm(dim=1).mean().item())

    def validationAnalyze(self, log):
        log["valid"]["distance"].append(np.mean(self.distances))
