"""The task of an analyzer: loads a package once, then runs one script after another.

In reading order:

analyzer_task: the loop.
process_state: what a script may change of the process, and its restoration.
script_interrupts: the signals that interrupt a script, or end the analyzer.
"""
