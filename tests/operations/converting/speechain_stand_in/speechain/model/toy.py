"""A model that classifies padded sequences of features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ToyModel(nn.Module):
    """Is built and called as a model of SpeeChain."""

    def __init__(
        self,
        model_conf: dict[str, Any],
        module_conf: dict[str, Any],
        criterion_conf: dict[str, Any] | None,
        device: torch.device,
        result_path: str | None,
        non_blocking: bool,
        distributed: bool,
    ) -> None:
        super().__init__()
        self.device, self.width = device, model_conf["customize_conf"]["width"]
        conf = module_conf["encoder"]["conf"]
        self.encoder = nn.Linear(conf["in_dim"], conf["d_model"])
        self.decoder = nn.Linear(self.width, 2)
        smoothing = (criterion_conf or {})["ce_loss"]["label_smoothing"]
        self.criterion = nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(self, batch_data: dict[str, Tensor], epoch: int | None = None) -> Any:
        scores = self.decoder(self.encoder(batch_data["feat"].to(self.device)).relu().mean(1))
        labels = batch_data["label"].to(self.device)
        accuracy = (scores.argmax(1) == labels).float().mean()
        losses = {"loss": self.criterion(scores, labels), "size": scores.square().mean()}
        if self.training:
            assert epoch is not None and epoch >= 1
            return losses, {"accuracy": accuracy}
        return {"loss": losses["loss"], "accuracy": accuracy.item()}

    def evaluate(self, test_batch: dict[str, Tensor], infer_conf: dict[str, Any]) -> dict[str, Any]:
        scores = self.decoder(self.encoder(test_batch["feat"]).relu().mean(1)) * infer_conf.get("scale", 1)
        return {"score": {"format": "txt", "content": scores.amax(1).tolist()}}
