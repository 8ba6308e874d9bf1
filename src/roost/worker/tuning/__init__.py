"""The measurements of `roost tune`, in a copy of a project.

tuning_task: the task
tuning_run: all targets, one after another
measured_run: builds the run, and measures the rate of its steps with other settings
budget: the time that is left
candidate_rounds: candidates for a setting, measured in turn; the choice among them
loader_tuning: loader workers, and batches fetched in advance
step_tuning: the batch size up to the memory, and the step mode
lr_range_test: the ramp of the learning rate
lr_suggestion: what the losses of the ramp suggest
"""
