"""The seals of a package: digests of what its sessions wrote, by which `roost verify` finds later changes.

In reading order:

- seal: one seal file: its format, its own digest, and the comparison of a file with it
- session_seal: which files the seal of a session or of a folder covers, and the seals of a package together
"""
