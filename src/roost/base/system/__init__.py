"""The machine and its processes, by standard library and ``/proc``.

process_identity: the identity of a process, and signals to it
prctl: signals, orphans and names that the kernel of Linux is asked for
process_title: what `ps` shows of this process
worker_protocol: environment variables, signals and reasons between supervisor and worker
cold_restart: the restart of a worker that was forked from a template process
cgroup_membership: the control groups of this process
cpu_cores: the number of usable CPU cores
cpu_wait: how long this process waits for a CPU core
spin_limit: how long a thread of OpenMP waits actively
collector_pause: imports without the garbage collector
host_memory: the memory that is still available
mounts: the types of file systems
state_folder: the lab's folder
site_packages: files of installed libraries
loopback: addresses of this machine
"""
