"""Decides on the training, with state in every place where a project may have it."""

import time

from DLNest.Common.LifeCycleBase import LifeCycleBase


class Mean:
    """A meter that each epoch makes anew."""

    def __init__(self):
        self.sum, self.count = 0.0, 0

    def add(self, value):
        self.sum += value
        self.count += 1


class LifeCycle(LifeCycleBase):
    def BAll(self):
        self.best, self.worse = -1.0, 0
        self.num_visualized = 0

    def BOneEpoch(self):
        self.mean = Mean()

    def BModelOneStep(self):
        if self._status.iter == 4 and self._status.epoch == 1:
            return "Skip"
        time.sleep(self.getArgs()["step_seconds"])
        return None

    def AModelOneStep(self):
        log = self.runner.seen
        self.mean.add(log["loss"][-1])

    def needVisualize(self, epoch, iter, logdict, args):
        return iter == 5

    def BValidateABatch(self):
        time.sleep(self.getArgs()["step_seconds"])

    def needValidation(self, epoch, logdict, args):
        return True

    def needSaveModel(self, epoch, logdict, args):
        return args["saves"]

    def holdThisCheckpoint(self, epoch, logdict, args):
        better = logdict["acc"][-1] > self.best
        self.best, self.worse = max(self.best, logdict["acc"][-1]), 0 if better else self.worse + 1
        return better

    def AOneEpoch(self):
        self.runner.scheduler.step()
        self.runner.seen["mean"] = self.mean.sum / self.mean.count
        self.runner.seen["lr"].append(self.runner.scheduler.get_last_lr()[0])

    def commandLineOutput(self, epoch, logdict, args):
        print(f"epoch {epoch} has ended")

    def needContinueTrain(self, epoch, logdict, args):
        return epoch + 1 < args["epochs"] and self.worse <= args["patience"]

    def getSaveDict(self):
        return {"best": self.best, "worse": self.worse}

    def loadSaveDict(self, saveDict):
        self.best, self.worse = saveDict["best"], saveDict["worse"]
