"""How operations start sessions and workers, and follow them.

session_request: the request of a session, its environment, and its start under a supervisor
program_plan: the request and the plan of a session of a program
rank_layout: how many ranks a session has, and on which devices
multi_node: the launch of ranks on several machines
foreground_lease: the cards of a session at a terminal, and their leases
requirements: what `require` of a config asks of the machine
archive_requirements: the archives that a config names
session_deadline: the time by which a session must have ended
running_session: the files of a running session, and how to follow them
scratch_folder: temporary folders that are removed even after a kill
package_worker: a worker that reads a package (analysis, export, prediction)
project_worker: a worker on a temporary copy of a project (check)
"""
