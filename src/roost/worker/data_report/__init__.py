"""The data report of ``roost show --data``: the sets of a project and their batches.

data_task: the task
report_builder: the stages of the report
set_description: type, size, lengths and classes of a set
batch_timing: contents, sizes and times of its batches
"""
