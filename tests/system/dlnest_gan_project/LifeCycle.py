"""Decides by the best distance, which BAll resets, and stops early by it."""

import time

from DLNest.Common.LifeCycleBase import LifeCycleBase


class LifeCycle(LifeCycleBase):
    def BAll(self):
        self.best, self.worse = float("inf"), 0

    def BModelOneStep(self):
        time.sleep(self.getArgs()["step_seconds"])

    def needVisualize(self, epoch, iter, logdict, args):
        return iter % 4 == 3

    def needValidation(self, epoch, logdict, args):
        return True

    def needSaveModel(self, epoch, logdict, args):
        return True

    def holdThisCheckpoint(self, epoch, logdict, args):
        better = logdict["valid"]["distance"][-1] < self.best
        self.best = min(self.best, logdict["valid"]["distance"][-1])
        self.worse = 0 if better else self.worse + 1
        return better

    def AOneEpoch(self):
        self.runner.scheduler.step()

    def commandLineOutput(self, epoch, logdict, args):
        print(f"epoch {epoch}: {len(logdict['d'])} steps of d, {len(logdict['g'])} of g")

    def needContinueTrain(self, epoch, logdict, args):
        return epoch + 1 < args["epochs"] and self.worse <= args["patience"]

    def getSaveDict(self):
        return {"best": self.best, "worse": self.worse}

    def loadSaveDict(self, saveDict):
        self.best, self.worse = saveDict["best"], saveDict["worse"]
