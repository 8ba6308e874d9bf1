"""Text for terminals, shared by the command line, the shells and the full-screen client. It prints results of
operations and carries out none.

In reading order:

terminal: output to stdout and stderr, escaping, colours, the width of text
table: tables
task_table: the table of tasks
device_table: the table of devices
tuning_table: what `roost tune` has found
task_explanation: why a task waits, or how it ended
terminal_plots: plots as text
"""
