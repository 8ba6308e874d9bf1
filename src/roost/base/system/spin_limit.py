"""The limit of OpenMP's spinning: how long a thread waits actively for the others before it sleeps (standard
library only)."""

# Standard library only

from __future__ import annotations

import os
from collections.abc import MutableMapping

_VARIABLE = "GOMP_SPINCOUNT"
_POLICY = "OMP_WAIT_POLICY"
_SPINS = "1000"
"""Takes about twice as long as a sleeping thread needs to wake up. With libgomp's default, 300,000, a thread
spins for longer than a time slice: if another process has the core of one thread, the others use up their own
time by waiting for it.

The time of a step on two cores (ms; of a perceptron and of a small convolutional net), the median of so many
processes, alternated. Quiet: of six, and nothing else ran (the convolutional net: the fastest one). Two
processes beside: the mean step, of ten. Load of 25: of three.

| threads | spins | quiet | two processes beside | load of 25 |
|---|---|---|---|---|
| 1 | | 0.35, 10.5 | 0.57, 28 and 1.2, 41 | |
| 2 | 300,000 | 0.28, 6.3 | 61, 431 | |
| 2 | 2000 | 0.30, 6.3 | 5.2, 62 and 4.8, 54 | |
| 2 | 1000 | 0.35, 6.7 | 1.5, 27 and 2.9, 39 | 1.5, 301 |
| 2 | 500 | 0.59, 7.9 | 1.6, 41 and 2.3, 48 | 1.1, 135 |
| 2 | 100 | 1.4, 8.0 | | |

The number of threads stays, so no bit of a result depends on the load of the machine.
"""


def set_default(env: MutableMapping[str, str] = os.environ) -> None:
    """Sets the limit, unless the user has set how threads wait. It must be called before torch is imported,
    because OpenMP reads the variable when it is loaded."""
    if _POLICY not in env:
        env.setdefault(_VARIABLE, _SPINS)
