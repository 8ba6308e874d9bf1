"""Operations: one typed function for each thing that a user can ask for. The surfaces (CLI, HTTP, Python,
...) call them and have no logic of their own.

lifecycle: to create, run, continue, fork, stop and debug packages
tuning: to find fast settings by measuring, and to write them into a tuning file
programs: to run any program of the user as a package
converting: to convert the configs of other trainers
sessions: how operations start sessions and workers, and follow them
queue: to submit tasks, list them, explain them and change them
live_lab: the live state of the lab, as changes and as a view-model
devices: the cards of this machine and leases on them
doctor: to find what is wrong with the machine, the lab and runs
listing: to list, search and group packages
reading: to show and verify packages
remote_copies: to upload packages to their remote copies and to restore them
keeping: to label, remove, restore and prune packages
python_api: packages and runs from Python
comparing: to compare packages
curves: to read and export records
importing: to make packages of the runs of other systems
plots: pictures of records and settings
models: to use the trained weights: analysis, prediction, export
evaluating: to evaluate checkpoints, with all rows and summaries
analyzers: to start analyzers and run scripts in them
simulation: to replay the queue on a virtual clock
work_progress: progress of work on many things, for who shows it
resolve: the package or tasks that a user names
lab: the lab of this user: its queue and its daemon
systemd_unit: starts the daemon with the machine
boot_start: continues with the machine what was interrupted
notices: the receivers of notices, and a test of each
cache_folder: the files that can be made again from packages
task_results: the result types of `tasks` and `why`
responses: bodies of answers of the server that are no result type of an operation
"""
