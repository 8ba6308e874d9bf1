"""A package without the Trainer: what a loop of your own saves, with its lineage, its tracks and its rows.

    python examples/package.py FOLDER

Run it again, or kill it at any moment and run it again: it goes on from the newest checkpoint. At the end it
goes back to step 4000 and takes a smaller learning rate from there. `roost ls`, `show`, `plot` and `verify`
read it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import roost

STEPS, SAVE_EVERY, BACK_TO = 6000, 1000, 4000
SETTINGS: dict[str, Any] = {
    "lr": 0.003,
    "checkpoint": {"fast": 2, "held": 1, "best": [{"monitor": "loss", "mode": "min"}]},
}


def opened(path: Path) -> roost.Package:
    """The package at ``path``, a new one if there is none."""
    if path.is_dir():
        return roost.open_package(path)
    return roost.Package.new(SETTINGS, root=path.parent, name=path.name, description="a line, by hand")


def main(path: Path) -> None:
    """Trains to the end, or on from where it was; then once more from the middle."""
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=SETTINGS["lr"])
    x = torch.linspace(-1, 1, 32).unsqueeze(1)

    def restore(run: roost.Package) -> int:
        if run.current is None:
            return 0
        state = run.load()  # the newest of the run's line; run.load(3) would give that one
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def train(run: roost.Package, first: int) -> None:
        for step in range(first + 1, STEPS + 1):
            loss = (model(x) - 3 * x - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % SAVE_EVERY == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                held = step == BACK_TO  # else no track would keep it until the end
                id = run.save(state, step=step, hold=held, metrics={"loss": loss.detach()})
                print(f"step {step}  loss {loss.item():.3e}  checkpoint {id}", flush=True)

    with opened(path) as run:  # the first save takes the package's lock; the end of the block gives it back
        begin = restore(run)
        print(f"begin at step {begin}")
        train(run, begin)

        (held,) = run.derived["ckpt_consistent"]
        run.set_current(held)  # what came after it stays on the disk, and is never chosen again
        begin = restore(run)
        print(f"back to checkpoint {held}, step {begin}")
        for group in optimizer.param_groups:
            group["lr"] = SETTINGS["lr"] / 10
        train(run, begin)


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "line")
