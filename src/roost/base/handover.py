"""What a supervisor hands to the worker that it starts: where things stand in its environment, and a signal
(standard library only)."""

REPORT_VARIABLE = "ROOST_REPORT_FD"
"""The descriptor for the worker's final line."""
STACKS_VARIABLE = "ROOST_STACKS_FD"
"""The descriptor for stacks, when they are asked for by `STACKS_SIGNAL`."""
STACKS_SIGNAL = 62
"""SIGRTMAX - 2 of Linux, which nobody else uses."""
TOKEN_VARIABLE = "ROOST_TOKEN"
"""What marks every process of a session that did not empty its environment."""
