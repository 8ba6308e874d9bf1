"""Files in a package that a run or a task writes for other commands to read.

In reading order:

- records_follower: follows the records of a run while they grow
- time_breakdown: the time of a run by parts
- profiles: what holds a run back, measured by ``profile``
- skipped_steps: the steps that a run has skipped
- black_box: failed steps with their state and batch, for `roost debug`
- initial_weights: the report about ``init_from``
- staged_archives: the digests of the staged archives of a run
- system_metrics: what cards, host and processes of a session did
- system_summary: the same in a few numbers
- predictions: the folders of predictions
- evaluations: the folders of evaluations, and the rows of their cells
- exports: the folder of pictures, tables and weights that are written for other programs
- check_findings: the findings of `roost check`
- data_report: the report of `roost show --data`
- tuning_report: the report of `roost tune`
"""
