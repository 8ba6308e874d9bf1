"""Measuring where the time of a process goes.

stack_sampler: the stacks of a thread, looked at many times a second
step_parts: which part of a step a stack belongs to
worker_stacks: the stacks of a loader worker, readable from the process that trains
operator_times: how long torch's operators take, from a trace
flame_graph: the picture of stacks
"""
