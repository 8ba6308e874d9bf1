"""What torch can do on this machine: ``python -P -m roost.train.accelerators.torch_probe`` prints one line of
JSON.

A process of its own, because commands never import torch, and because torch may fail or hang when it opens a
driver.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch


def probe() -> dict[str, Any]:
    """Returns the version of torch, what it was built for, the GPUs that it sees, and why it sees none."""
    cuda = torch.cuda
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_available = cuda.is_available()
    found: dict[str, Any] = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "available": is_available,
        "error": " ".join(str(caught[0].message).split()) if caught and not is_available else "",
        "threads": torch.get_num_threads(),
        "architectures": cuda.get_arch_list() if is_available else [],
    }
    gpus = range(cuda.device_count()) if is_available else ()
    found["gpus"] = [
        {"name": cuda.get_device_name(gpu), "capability": cuda.get_device_capability(gpu)} for gpu in gpus
    ]
    if is_available:
        try:
            found["sum"] = torch.ones(64, device="cuda").sum().item()
        except RuntimeError as error:
            found["error"] = str(error).splitlines()[0]
    return found


if __name__ == "__main__":
    print(json.dumps(probe()), flush=True)
