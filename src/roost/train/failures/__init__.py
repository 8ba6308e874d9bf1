"""Failed steps: what happens to the run, and what is kept of the step.

recovery: the decision about a failed step: skip it, roll back, or end the run.
step_context: the parts of a training around a step that may fail.
failed_step: questions about a failed step: its cause, whether it can be skipped, what other ranks must know.
skipped_batches: the batches of an evaluation that are skipped.
step_report: the place of a step in the data, the log of skipped steps.
black_box_recorder: writes the failed step for `roost debug`.
"""
