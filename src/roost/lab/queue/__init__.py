"""The queue: the SQLite file of the tasks of one user, and what is needed to rebuild it from packages.

In reading order:

task: `Task`, and the states of a task.
task_states: the allowed transitions between states.
queue_store: `QueueStore`, which reads and changes tasks in transactions.
history: events, memory profiles and settings, the base of `QueueStore`.
database: opens SQLite, and turns its errors into errors for the user.
schema: the tables and their migrations.
task_rows: tasks as rows, with their environments.
card_assignments: the cards that tasks hold.
admission: checks of dependencies of new tasks.
task_lookup: finds tasks by what a user types.
task_file: the copy of a task in its package.
package_roots: the folders that hold packages of tasks.
rebuild: a new queue from the packages.
wakeup: wakes the daemon after a change.
"""
