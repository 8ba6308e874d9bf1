"""The operation ``doctor``: what is wrong with the machine, the installation, the lab and runs, each with a
fix.

diagnosis: one line of the result, and the form of a check
driver_facts: the driver and the cards, read once
doctor_checks: the table of all checks
examination: runs them
gpu_checks: the driver, the cards, and who uses them
torch_check: what torch can do, by a child process
machine_checks: cores, memory, shared memory, limits
disk_checks: space, speed and abilities of the disks
clock_checks: the clock
installation_checks: Python, optional libraries, the environment
lab_checks: daemon, server, processes that were left, interrupted runs
run_checks: where runs compute, their mirrors; a package, a config
"""
