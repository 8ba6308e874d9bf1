"""The cost of the Trainer per step, compared with a raw PyTorch loop of the same numerics, and with peers.

    python bench/step_overhead.py [--rounds 9]
    python bench/step_overhead.py --peers

Model 32-64-10, batch 16, prebuilt batches, one thread. roost has everything on that `roost run` sets up:
records (a row every 100 steps), the progress file of the live bar, checkpoints (at the end of the epoch of
1,000 steps), best, early stopping, validation, the console. Each round runs the raw loop and then the other
one; figures are the median over rounds of CPU time per step, and the ratio of medians. The first 200 steps
are not timed. A loop that does not end with the weights of the raw loop, bit for bit, is an error; the fused
kernel may differ by 0.001.

``--peers`` adds Lightning, Fabric, Accelerate, Ignite and the Trainer of Hugging Face. They are installed
into a separate environment in the repository (.bench/peers; the first time this takes minutes), and all cases
run there. bench/loops/peer_loops.py and peer_trainers.py describe what each has on.
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
    """Returns the cases of roost's Trainer; everything is on unless the name says otherwise."""
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
    """Returns the cases of the peers, with SGD; they are importable only in their environment."""
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
    parser.add_argument("--peers", action="store_true", help="add the peers, in a separate environment")
    arguments = parser.parse_args()
    if arguments.peers and not environment.is_active():
        sys.exit(subprocess.run([environment.make(), *sys.argv]).returncode)
    if arguments.peers:
        print(environment.versions())
    print_table([*roost_cases(), *(peer_cases() if arguments.peers else [])], rounds=arguments.rounds)


if __name__ == "__main__":
    main()
