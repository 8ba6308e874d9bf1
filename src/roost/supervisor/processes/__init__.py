"""The processes of a session: finding and ending all of them.

process_tree: kills a process with all of its descendants
cgroup: one control group per session, which no process leaves by forking
session_processes: what guard and supervisor do with the processes of their session
abandoned_processes: kills what is left of sessions whose guard and supervisor were killed
upload_process: the process that uploads a package to its remote copy
"""
