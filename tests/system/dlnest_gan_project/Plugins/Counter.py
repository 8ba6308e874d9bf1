"""A plugin of the project's own: counts the epochs, in the LifeCycle that it is given as self."""

from DLNest.Plugins.DLNestPluginBase import DLNestPluginBase


class DLNestPlugin(DLNestPluginBase):
    _NAME = "Counter"

    def BTrain(self):
        if not hasattr(self, "counted"):
            self.counted = self.getArgs()["plugins_config"]["Counter"]["start"]

    def BOneEpoch(self):
        self.counted += 1

    def getSaveDict(self):  # also of the runner and of the dataset
        return {"counted": self.counted} if hasattr(self, "counted") else {}

    def loadSaveDict(self, saveDict):
        if "counted" in saveDict:
            self.counted = saveDict["counted"]
