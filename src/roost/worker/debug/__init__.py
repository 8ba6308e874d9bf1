"""``roost debug``, and pdb in a run.

breakpoints: `breakpoint()` and pdb after an error, in a run started with ``--pdb``
post_mortem: pdb that stops in the project's code
debug_task: the task of ``roost debug``
replay: the trainer that repeats the steps before
failing_step: the hook that takes the last step in the debugger
nonfinite_trace: the search for the call of torch that made a value NaN or infinite
"""
