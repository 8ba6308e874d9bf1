"""The views of the client, a file for each.

line_view: lines of which only the visible and changed ones are drawn; the others build on it
status_line: the first and the last line
verb_line: F1
output_pane: F2 and F3, and the log of a run
tasks_pane: F4
devices_pane: F5
run_pane: F6
help_screen: `?`
"""
