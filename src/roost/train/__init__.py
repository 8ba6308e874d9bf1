"""Training: the loop, its hooks, and the parts that a step is made of. In reading order:

trainer: the loop over steps
hook: `Hook`, `Phase`, and the calls of hooks
agenda: which hooks are due after a step
requests: requests to a trainer: save, validate, visualize, stop
progress: the position of a run
end_condition: the end of a run
events: metrics between the step and the row
inexact_reasons: why a run cannot be repeated bit for bit
deadline: when a session with a deadline must begin to end
session_forecast: whether a run will finish before its session ends

accelerators: what torch is asked about the device: CPU, CUDA, MPS, XPU
step: one optimizer step
optim: optimizers, schedules, averages of weights
model: parameters, state and memory of the model
data: loaders, streams, batch plans
evaluation: metrics of a split
checkpointing: saves concurrent with training, and their restore
failures: failed steps: skip, rollback, black box
distributed: several ranks
weights: initial weights from files and packages
profiling: where the time of a process goes: its stacks, its operators
hooks: the built-in hooks
reporting: progress record and media
mirrors: copies of rows and media in TensorBoard, W&B, MLflow, CSV
"""
