"""The check of ``roost check``: every stage of a run, once, in seconds.

check_task: the task
check_run: the stages, from the imports to the resumed run
stages: the printed and recorded line of each stage
stage_hooks: hooks that report the stages of the shortened run
data_excerpt: the shortened data
speed_measurement: the time of a step and of an evaluation
state_fingerprints: the bitwise comparison of two states
"""
