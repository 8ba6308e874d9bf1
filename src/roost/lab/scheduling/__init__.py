"""The scheduling pass of the daemon and the handling of attempts; what is decided here is carried out here.

scheduler: one pass: reads the state, decides by the policy, starts tasks
thread_share: the threads of a task that requests no cores
site_rules: the rules of the machine's owner
other_queues: the demand of the other queues of the machine, and what this one publishes
reason_writer: writes the reasons of waiting tasks into the queue
attempts: the live attempts: watches them, records their ends, passes on stop requests
attempt_outcome: the state of a task after the end of an attempt, and retries
durability_events: remote copies that do not get further, as events of the queue
stall_events: recorded stalls as events of the queue
max_sleep: the longest sleep of the daemon
"""
