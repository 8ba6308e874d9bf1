"""Analyzers: tasks that have loaded a package once and run one script after another.

In reading order:

start_analyzer: queues an analyzer.
script_call: runs a script in an analyzer, interrupts it, switches the checkpoint, lists scripts and calls.
call_results: the result types of these operations.
call_stream: the output of a call while it is printed, and its end.
"""
