"""The package of a run on disk: creates, reads and checks its files, without importing torch or project code.

In reading order:

- package_name: names of package folders, and numbered folders
- kinds: the kinds of packages and of tasks
- session_folder: the lock, sessions and output of a task
- package: the folder of one run
- program_request: the program in the request of a package
- package_draft: a checked package before its creation
- dlnest: packages of DLNest's contract
- project_preflight: checks of a project without importing its code
- snapshot: the copy of the project's code
- session_schema: every field of a session's request file and session record
- sessions: the sessions of a package, read and written
- owner: which session of which machine may write to a package
- live_progress: the progress record that the worker updates each step
- labels: tags, note and star, which a person gives
- records: the rows of metrics
- seals: digests of what ended sessions wrote
- checkpoints: format, retention and selection of checkpoints
- lineage: the parents of a fork
- resume: the environment of a run, and what may change when it continues
- setting_locations: where a setting was set, for messages
- remote: remote copies of packages in a store
- results: files that a run or a task writes for other commands
"""
