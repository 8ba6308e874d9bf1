"""Operations on analyzers, the tasks that have loaded a package once and run scripts on it.

In reading order:

start_analyzer: queues one
script_call: requests to an analyzer that runs
"""
