"""Notices: messages about tasks and runs that ended, failed or stalled, sent by mail and other services.

In reading order:

notice_events: the events, the event for each kind of queue event, and the settings file; without imports of a
    network.
receivers: the settings: which receivers get notices of which events.
notice_text: `Notice`, its title, its text and the fields of its tasks.
service_payloads: the URL and JSON body that each service requires.
delivery: sends one notice to one receiver, with retries.
event_cursor: the last queue event whose notice was sent, in a file.
notice_dispatch: starts the sending process from the daemon, which never waits for a network.
queue_notices: the sending process for tasks of the queue.
run_notice: the sending process for one run without a task.
unsent_run_notices: the sending process for runs whose own notice was never sent.
test_message: one test notice, sent by a process of its own.
"""
