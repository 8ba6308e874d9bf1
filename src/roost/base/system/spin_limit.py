"""The limit of OpenMP's spinning: how long a thread waits actively for the others before it sleeps (standard
library only)."""

# Standard library only

from __future__ import annotations

import os
from collections.abc import MutableMapping

_VARIABLE = "GOMP_SPINCOUNT"
_POLICY = "OMP_WAIT_POLICY"
_SPINS = "500"
"""Takes about as long as a sleeping thread needs to wake up. With libgomp's default, 300,000, a thread spins
for longer than a time slice: if another process has the core of one thread, the others use up their own time
by waiting for it.

The time of a step on two cores (ms; of a perceptron, a small convolutional net, a small transformer): the
least of 8 trials where little else ran, and the median of 8 beside about nine busy processes.

| threads | spins | quiet | busy |
|---|---|---|---|
| 1 | | 0.39, 26, 68 | 1.8, 80, 268 |
| 2 | 300,000 | 0.38, 20, 40 | 21, 517, 3037 |
| 2 | 1000 | 0.48, 21, 43 | 1.8, 127, 359 |
| 2 | 500 | not measured | 1.0, 55, 93 |
| 2 | 100 | 0.67, 19, 56 | not measured |

The number of threads stays, so no bit of a result depends on the load of the machine.
"""


def set_default(env: MutableMapping[str, str] = os.environ) -> None:
    """Sets the limit, unless the user has set how threads wait. It must be called before torch is imported,
    because OpenMP reads the variable when it is loaded."""
    if _POLICY not in env:
        env.setdefault(_VARIABLE, _SPINS)
