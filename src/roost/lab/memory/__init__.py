"""The memory of cards: what attempts used, and what later tasks will need.

memory_use: the memory use of an attempt, from the record of its session
memory_features: the code and the settings of a run, as digests
run_comparison: which settings have changed the memory, and which runs are similar
memory_prediction: the memory for a task, from the peaks of similar runs
expectations: memory and run time of all pending tasks, cached between scheduling passes
"""
