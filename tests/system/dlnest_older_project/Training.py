"""In the style of 0.3.0: a constructor with rank, and the runner is `self.model`."""

import time

from DLNest.Common.LifeCycleBase import LifeCycleBase


class Training(LifeCycleBase):
    def __init__(self, model=None, dataset=None, taskProcess=None, rank=-1):
        super().__init__(model, dataset, taskProcess, rank)
        self.is_first = rank in (-1, 0)

    def BAll(self):
        self.best = 0.0

    def BModelOneStep(self):
        time.sleep(self.getArgs()["step_seconds"])

    def needVisualize(self, epoch, iter, logdict, args):
        return False

    def needValidation(self, epoch, logdict, args):
        return epoch % 2 == 0

    def commandLineOutput(self, epoch, logdict, args):
        if self.is_first:
            print(f"epoch {epoch} by {type(self.model).__name__}")

    def needSaveModel(self, epoch, logdict, args):
        return True

    def holdThisCheckpoint(self, epoch, logdict, args):
        better = epoch % 2 == 0 and logdict["acc"][-1] > self.best
        if better:
            self.best = logdict["acc"][-1]
        return better

    def AOneEpoch(self):
        self.model.scheduler.step()

    def needContinueTrain(self, epoch, logdict, args):
        return epoch + 1 < args["epochs"]

    def getSaveDict(self):
        return {"best": self.best}

    def loadSaveDict(self, saveDict):
        self.best = saveDict["best"]
