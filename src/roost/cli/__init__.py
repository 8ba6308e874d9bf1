"""The command line: the program ``roost``. A command parses its arguments, calls one operation and prints the
result.

commands: one module for each command
options: options that several commands share
__main__: the program: the list of commands, errors and exit codes
other_tools: commands, options and scripts of other tools, and what to type here
upload_wait: the last upload to a remote copy, after the end of a session
live_run: follows a running session, and handles Ctrl-C
surface: the words and screens of a terminal, or of the cell of a notebook
live_call: follows a script in an analyzer
plain_output: the screen of a followed session in a pipe or file
progress_bar: the screen of a followed session on a terminal
count_line: the line of progress of work on many things
wait_progress: screens that show the stage of other work
device_history_view: draws what cards and host did, for `roost devices --history`
package_view: text of `roost show`
evaluations: text of evaluations and their comparison
comparing: text of `roost compare`
data_view: text of `roost show --data`
confirmation: the question before something is removed
queued_readers: the forms `roost submit analyze`, `predict` and `evaluate`
task_changes: `hold`, `release` and `priority`
"""
