"""One optimizer step: from a window of micro-batches to changed weights. In reading order:

stepper: `Stepper`, takes the steps
loss: `Window`, and the checks of what a loss function returns
gradients: forward and backward pass over micro-batches and ranks
fast_ops: backward pass and optimizer step without overhead in Python
precision: autocast and loss scaling
nonfinite_check: skips steps whose loss or gradient is not finite
device_flags: flags of bad steps, kept on their device
compilation: loss functions compiled by torch.compile
windows: draws the micro-batches of each step
seeding: seeds and states of random generators
timing: time and memory by part of a step
device_clock: times of an accelerator by its events
"""
