"""Scheduling policy: a pure function from the state of a lab to a decision, without a clock and without I/O.

policy_state: the input (state, rules) and the result (placements, preemptions, reasons) as plain data
decision: the decision, by one pass over the pending tasks
queue_order: the order in which tasks are considered: class, priority, fair share, age
task_groups: pending tasks with equal requests, decided on together
start_conditions: holds, begin times and dependencies
card_capacity: the free memory of the cards during a pass
host_share: the CPU cores and the memory of the host that a task takes
host_capacity: the free part of the host during a pass, and its reservation
running_tasks: the ends of live tasks, and what they charge their users
reservation: the cards kept for the first blocked task (EASY backfill)
pass_cache: cards and live tasks, cached from one decision to the next
wait_reasons: the sentences that say why a task waits
reason_codes: the code before the colon of each reason
"""
