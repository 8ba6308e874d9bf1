"""The check of ``roost check``: every stage of a run, once, in seconds.

check_task: the task
check_run: the stages, from the imports to the resumed run
dlnest_check: the stages of a project in DLNest's contract
stages: the printed and recorded line of each stage
stage_hooks: hooks that report the stages of the shortened run
short_run: shortens the data and the end of a trainer
resume_comparison: the bitwise comparison of a resumed run
speed_measurement: the time of a step and of an evaluation
"""
