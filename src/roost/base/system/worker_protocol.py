"""The protocol between a supervisor and its workers: environment variables, signals and reasons (standard
library only)."""

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""Requests to save and stop. Batch systems send SIGUSR1 before a time limit."""

REPORT_VARIABLE = "ROOST_REPORT_FD"
"""The descriptor for the worker's final report; under a launcher (torchrun, srun), a path to be opened."""
STACKS_VARIABLE = "ROOST_STACKS_FD"
"""The descriptor to which a worker writes its stacks on `STACKS_SIGNAL`."""
STACKS_SIGNAL = 62
"""SIGRTMAX - 2 on Linux, which has no other use."""
TOKEN_VARIABLE = "ROOST_TOKEN"
"""A token in the environment of every process of a session, by which its processes are found."""
RENDEZVOUS_VARIABLE = "ROOST_MEETING"
"""The file by which the ranks of one machine find each other (rendezvous)."""
DEADLINE_VARIABLE = "ROOST_DEADLINE"
"""The time by which the session must have ended: Unix seconds, or an ISO time. The user may set it, too."""
LEASE_VARIABLE = "ROOST_LEASE"
"""The token of the leases that a run holds, so that processes which it starts may use the same cards."""
OUT_OF_MEMORY = "oom_gpu"
"""The reason of a session that failed because the GPU had no more memory."""
OUT_OF_HOST_MEMORY = "oom_host"
"""The reason of a session whose processes used more memory of the machine than was requested for them."""
THREADS_VARIABLE = "OMP_NUM_THREADS"
"""The number of threads of torch and of most numerical libraries, which by default use all cores."""
TIME_LIMIT = "time limit"
"""The reason of a session that ended at its time limit."""
EARLY_STOP = "early stop"
"""The reason of a session that succeeded before the end that its settings give."""

MISTAKE = "error"
"""The reason of a session that an error of roost's own ended, such as a name that does not exist."""
