"""The types of devices that a session can be started on, by torch's names, without importing torch.

What torch can do with each is in `roost.train.accelerators`.
"""

from __future__ import annotations

AUTO = "auto"
"""The request for whatever the machine has."""
CPU = "cpu"
CARDS = "cuda"
"""The type of the cards that this folder lists and leases."""
REQUESTABLE = (AUTO, CPU, CARDS, "mps", "xpu")
"""The values of ``--device``."""


def may_use_cards(requested: object) -> bool:
    """Whether a session that requests this device may compute on cards, and so takes their leases. A request
    may name no device, or a numbered one."""
    return requested is None or str(requested).partition(":")[0] in (AUTO, CARDS)
