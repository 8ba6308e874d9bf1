"""What a supervisor hands to the worker that it starts: where things stand in its environment, and a signal
(standard library only)."""

REPORT_VARIABLE = "ROOST_REPORT_FD"
"""The descriptor for the worker's final line; for what a launcher starts, a path to be opened."""
STACKS_VARIABLE = "ROOST_STACKS_FD"
"""The descriptor for stacks, when they are asked for by `STACKS_SIGNAL`."""
STACKS_SIGNAL = 62
"""SIGRTMAX - 2 of Linux, which nobody else uses."""
TOKEN_VARIABLE = "ROOST_TOKEN"
"""What marks every process of a session that did not empty its environment."""
MEETING_VARIABLE = "ROOST_MEETING"
"""The file by which the ranks of one machine find each other."""
DEADLINE_VARIABLE = "ROOST_DEADLINE"
"""The moment by which the session must have ended: unix seconds, or an ISO time. A person may set it, too."""
LEASE_VARIABLE = "ROOST_LEASE"
"""The token of the leases that a run holds: what it starts itself may use the same cards."""
TIME_LIMIT = "time limit"
"""Why a session ended whose time was used up."""
