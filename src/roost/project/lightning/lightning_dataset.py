"""A LightningDataModule as a Dataset, with the loaders that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.base.errors import ContractError
from roost.project.contract import Data, Dataset
from roost.project.lightning.module_contract import call, overrides


class LightningDataset(Dataset):
    """The data of a LightningDataModule: ``dataset: Data.py:DigitsData`` in a config makes one from its
    class, whose arguments are the setting ``datamodule``.

    Called are ``prepare_data``, ``setup("fit")`` and ``setup("test")``, and ``train_dataloader``,
    ``val_dataloader``, ``test_dataloader`` and ``predict_dataloader``. The loaders make the batches: the
    section ``data`` has no say in them.
    """

    module_class: type | None = None

    def __init__(self, args: Mapping[str, Any]) -> None:
        super().__init__(args)
        if self.module_class is None:
            raise ContractError(f"{type(self).__name__} has no module_class", fix="set it to your class")
        self.module = self.module_class(**(args.get("datamodule") or {}))

    @classmethod
    def of(cls, module_class: type) -> type[LightningDataset]:
        """Returns the Dataset class of a data module's class."""
        return type(f"{module_class.__name__}Dataset", (cls,), {"module_class": module_class})

    def prepare(self) -> None:
        call(self.module, "prepare_data")

    def build(self) -> Data:
        for stage in ("fit", "test"):
            call(self.module, "setup", stage)
        return Data(
            train=self._loaders("train_dataloader"),
            valid=self._loaders("val_dataloader"),
            test=self._loaders("test_dataloader"),
        )

    def predict(self, source: str) -> Any:
        call(self.module, "setup", "predict")
        found = self._loaders("predict_dataloader")
        if found is None:
            raise ContractError(f"{type(self.module).__name__} has no predict_dataloader")
        return found

    def _loaders(self, name: str) -> Any:
        """Returns one loader, or several by name; None without."""
        found = getattr(self.module, name)() if overrides(self.module, name) else None
        if isinstance(found, list | tuple):
            return found[0] if len(found) == 1 else {str(i): one for i, one in enumerate(found)} or None
        return found
