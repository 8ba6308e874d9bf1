"""The one background process of a kind that a user has: the lab's daemon, the server.

background_process: its lock, its record, its start and its end
watchdog: the parent that restarts it whenever it is killed
daemon_presence: the lock and the record of the lab's daemon
"""
