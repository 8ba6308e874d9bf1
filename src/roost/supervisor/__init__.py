"""Runs one session and leaves no process behind: guard, supervisor, workers, limits (standard library only).

In reading order:

session_spec: what one session runs, under which limits and where it writes
limits: the limits of one session
guard_start: an operation starts the guard and waits until the session is recorded
guard: the first process of a session; cleans up if the supervisor is killed
supervisor: the process that starts the workers, enforces the limits and records the end
rank_processes: all workers of a session, one or one per rank
worker_process: how one worker is forked
rendezvous: the folder in which the ranks of one machine find each other
torchrun_ranks: the ranks that a launcher such as torchrun has started
session_watch: the checks at each tick: time limit, leases, output, stalls, memory
exit_status: the outcome of a session, from the worker's final report and exit status
session_record: the file `sessions/<n>.json`
attempt_progress: how far each attempt at a run got, and whether they go in circles
session_restart: the session that follows a failed one (`--restart N`)
signals: the signals that guard and supervisor handle

processes: process tree, cgroup, and processes abandoned by killed sessions
monitoring: memory, stalls and the stacks of processes
output: the output file and its size limit
forkserver: warm starts: guards and workers forked from a template process
notices: the notices of runs outside the queue
"""
