"""What a training does, and when: every decision is a method of this class."""

from DLNest.Common.LifeCycleBase import LifeCycleBase


class LifeCycle(LifeCycleBase):
    """Validates and saves after each epoch, and holds the checkpoint of the best accuracy.

    Epochs are counted from 0. A method `BName` is called before `Name`, and leaves it out if it returns
    "Skip"; `AName` is called after it: All, DatasetInit, ModelInit, Train, OneEpoch, ModelOneStep,
    Visualize, Validation, SaveModel."""

    def BAll(self):
        self.best = -1.0

    def needVisualize(self, epoch: int, iter: int, logdict: dict, args: dict):
        return iter % 200 == 0

    def needValidation(self, epoch: int, logdict: dict, args: dict):
        return True

    def commandLineOutput(self, epoch: int, logdict: dict, args: dict):
        print(f"epoch {epoch} finished")

    def AValidation(self):
        print(f"accuracy {self.runner.totalCorrect / self.runner.total:.4f}")

    def needSaveModel(self, epoch: int, logdict: dict, args: dict):
        return True

    def holdThisCheckpoint(self, epoch: int, logdict: dict, args: dict):
        if logdict["acc"][-1] <= self.best:
            return False
        self.best = logdict["acc"][-1]
        return True

    def AOneEpoch(self):
        self.runner.scheduler.step()

    def needContinueTrain(self, epoch: int, logdict: dict, args: dict):
        return epoch + 1 < args["epochs"]

    def getSaveDict(self):
        return {"best": self.best}

    def loadSaveDict(self, saveDict):
        self.best = saveDict["best"]
