"""The live state of the lab: what `GET /lab/follow` sends, and the view-model that its readers share.

lab_change: the changes, one type for each kind
lab_state: the state that the changes build up: tasks, sweeps, cards, histories, without a terminal
lab_observer: finds the changes
queue_watch: the changes of the queue
run_watch: progress, metrics and settings of tasks
card_watch: cards, their holders, and samples of the machine
expected_starts: when pending tasks are expected to start
value_history: bounded histories for spark-lines
task_cells: the texts of a task in a table
card_cells: the texts of a card in a table
task_filter: selects and sorts tasks by the query language of `roost ls`
"""
