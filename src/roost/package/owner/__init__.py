"""The owner of a package: the machine and session that may write to it.

A package's lock keeps the processes of one machine apart. It does not reach another machine that sees the
same folder over a network, or that has a copy. So each session names itself in a file of the package, which
its supervisor renews as long as it runs.

In reading order:

owner_file: the file `sessions/owner.json`, and its heartbeat.
other_owner: whether a session of another machine owns a package.
owner_thread: the heartbeat of a Python program that has the package open.
takeover: a package is taken over from another machine.
"""
