"""What the Trainer costs per step, beside a raw PyTorch loop with the same numerics, and beside its peers.

    python bench/step_overhead.py [--rounds 9]
    python bench/step_overhead.py --peers

Model 32-64-10, batch 16, prebuilt batches, one thread. roost has everything on that `roost run` sets up:
records (a row each 100 steps), the progress board of the live bar, checkpoints (at the end of the epoch of
1,000 steps), best, early stopping, validation, the console. Rounds alternate the raw loop and the other one;
quoted are the median over rounds of CPU time per step, and the ratio of medians. The first 200 steps are not
timed. A loop that does not end with the weights of the raw loop is an error; bit for bit, but for the fused
kernel.

``--peers`` adds Lightning, Fabric, Accelerate, Ignite and the Trainer of Hugging Face. They are installed by
name into an environment of their own below the repository (.bench/peers; it takes minutes, the first time),
where all cases then run. What each has on is said in bench/loops/peer_loops.py and peer_trainers.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from loops import environment, roosted
from loops.table import Case, print_table
from loops.task import Work

ADAMW = Work("adamw")
CLIPPED = Work(max_grad_norm=1.0)


def roost_cases() -> list[Case]:
    """roost's Trainer, everything on, but for the row that says otherwise."""
    return [
        Case("roost: SGD", roosted.all_on),
        Case("roost: SGD, nothing on", roosted.bare),
        Case("roost: SGD, clipping", roosted.all_on, CLIPPED),
        Case("roost: SGD, accumulation 2", roosted.all_on, Work(accumulation=2)),
        Case("roost: AdamW", roosted.all_on, ADAMW),
        Case("roost: AdamW, fused: auto", roosted.all_on_fused, ADAMW, 1e-3),
        Case("roost: AdamW, bf16, clipping", roosted.all_on, Work("adamw", max_grad_norm=1.0, bf16=True)),
    ]


def peer_cases() -> list[Case]:
    """The peers, with SGD; only their own environment has them."""
    from loops import peer_loops, peer_trainers

    return [
        Case("Lightning, all off", peer_trainers.lightning_bare),
        Case("Lightning, default", peer_trainers.lightning_default),
        Case("Fabric", peer_loops.fabric),
        Case("Accelerate", peer_loops.accelerate),
        Case("Accelerate, its DataLoader", peer_loops.accelerate_loader),
        Case("Ignite, all off", peer_loops.ignite),
        Case("Ignite, bar and metric", peer_loops.ignite_default),
        Case("HF Trainer, all off", peer_trainers.hugging_bare),
        Case("HF Trainer, default (clips)", peer_trainers.hugging_default, CLIPPED),
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peers", action="store_true", help="add the peers, in an environment of their own")
    given = parser.parse_args()
    if given.peers and not environment.inside():
        sys.exit(subprocess.run([environment.make(), *sys.argv]).returncode)
    if given.peers:
        print(environment.versions())
    print_table([*roost_cases(), *(peer_cases() if given.peers else [])], rounds=given.rounds)


if __name__ == "__main__":
    main()
