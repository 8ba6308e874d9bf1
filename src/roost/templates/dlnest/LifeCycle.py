"""What a training does, and when: every decision is a method of this class."""

from DLNest.Common.LifeCycleBase import LifeCycleBase


class LifeCycle(LifeCycleBase):
    """Epochs are counted from 0. A method `BName` is called before `Name`, and leaves it out if it returns
    "Skip"; `AName` is called after it: All, DatasetInit, ModelInit, Train, OneEpoch, ModelOneStep,
    Visualize, Validation, SaveModel."""

    def needVisualize(self, epoch: int, iter: int, logdict: dict, args: dict):
        return False

    def needValidation(self, epoch: int, logdict: dict, args: dict):
        return True

    def commandLineOutput(self, epoch: int, logdict: dict, args: dict):
        print(f"epoch {epoch}: loss {logdict['loss'][-1]:.4f}")

    def needSaveModel(self, epoch: int, logdict: dict, args: dict):
        return True

    def holdThisCheckpoint(self, epoch: int, logdict: dict, args: dict):
        return False

    def needContinueTrain(self, epoch: int, logdict: dict, args: dict):
        return epoch + 1 < args["epochs"]
