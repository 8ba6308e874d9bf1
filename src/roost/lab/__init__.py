"""The lab: the queue, the devices and the scheduler of one user on one machine.

daemon: the process that runs the queue
queue: the SQLite file of tasks, their states, history and settings
scheduling: the scheduling pass, and the attempts that it starts
policy: the decision what starts where, as a pure function
executors: what starts attempts and reports their status: this machine
sessions: the plan and the start of a session, and requests to running ones
memory: the memory use of attempts, and predictions from it
notices: messages about ends, failures and stalls, and their delivery
background: the lock, the record and the watchdog of a background process
"""
