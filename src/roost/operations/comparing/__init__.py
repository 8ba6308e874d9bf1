"""`roost compare`: what differs between runs. Only reads: no code of a package is executed.

comparison: the result types of compare
comparison_table: a result as a short table, for Python and notebooks
compare: the comparison as a whole
compared_run: reads one run for a comparison, as far as it can be read
run_relation: forks, sweeps, and runs that differ only in their seed
setting_comparison: the settings that differ
environment_comparison: the software and hardware that differ
metric_comparison: last, best and common values of metrics
curve_comparison: the step at which the recorded values of two runs part
code_comparison: the copied files that differ
evaluation_comparison: two evaluations, sample by sample
line_diff: the lines that differ, in bounded time
"""
