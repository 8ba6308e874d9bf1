"""The worker: the process that runs one task, or one rank of it, started as ``python -m roost.worker``.

In reading order:

__main__: the entry point, which runs the task and writes the final report
train_task: training, one session of a package
dlnest_task: training of a project in DLNest's contract
initialize_task: the hook of ``roost run --initialize``
analyze_task: an analysis script
analyzer/: the loop of an analyzer, a task of the lab that runs one script after another
programs/: programs of the user, started and observed from outside
results/: export of weights, predictions, evaluations
check/: the check, a shortened run
data_report/: the report on a project's sets
tuning/: the measurements of `roost tune`
debug/: ``roost debug``, and breakpoints
ranks/: rank and world size, rendezvous, diagnosis of lost ranks
torch_settings: determinism and threads, applied to torch
card_memory: limit and measurement of card memory
card_limit: the hook that limits it again when the GPU's libraries are loaded
worker_signals: signals, turned into a stop request or a dump of stacks
remote_upload: the process that uploads a package to its remote copy, concurrently with any session
caller_watch: the end of a task whose caller is gone
worker_output: output streams that survive a full disk
final_report: the JSON line about the worker's end
failure_report: the explanation and traceback of a failure
causes/: the known causes of failures
"""
