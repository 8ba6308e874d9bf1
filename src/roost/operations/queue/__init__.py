"""Operations on the queue: to submit tasks, list them, explain them and change them.

resources: the options of a task and whether this machine can meet them
card_request: memory on one card, or divided among several
new_tasks: new rows of the queue, queued all or none
submit: trainings become tasks
sweep: overrides with several values, expanded to combinations
continue_interrupted: all runs that were interrupted are queued again
reading_task: a task that only reads a package, with a session folder of its own
expected_memory: the card memory that pending tasks will get, and why
memory_profile: the key under which the memory use of a task is learned
list_tasks: the rows of `roost tasks`
why: the reason why a task is pending, or how it ended
task_control: requests to stop, kill, hold and release tasks, and their priority
task_labels: names and shortened ids of tasks in texts
sleep_limit: the longest sleep of the daemon
"""
