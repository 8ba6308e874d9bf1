"""The commands of ``roost``, one module each, named as the command; ``continue_`` is `roost continue`.

A module has a click command named ``command``, which parses the arguments, calls one operation and prints the
result. Operations are imported inside the function, so that `--help` stays fast.
"""
