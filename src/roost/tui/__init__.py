"""The full-screen client `roost client`. In reading order:

client_app: the screen, its keys, and what they do
layout: which views are visible, by the shape of the terminal
view_state: what a person has chosen: selection, marks, filter, order; without a terminal
connection: the stream from the server, which fills the state of the lab
key_table: the keys, for bindings, hints and help
panes: a file for each view
queue_cells: the lines of tasks and sweeps
run_view: fills the pane of the run
run_tabs: from a run's data to the lines of its tabs
drawing: colours, spark-lines, bars, curves, pictures
verb_thread: carries out command lines
editor: notes and scripts in $EDITOR
first_frame: the picture before Textual is imported
terminal_driver: takes the terminal back after Ctrl-Z and fg
terminal_guard: restores the terminal, however the client ends
"""
