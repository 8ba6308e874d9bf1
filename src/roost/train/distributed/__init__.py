"""Training in several processes: messages between the ranks, and equal weights on all of them.

ranks: the ranks of a run, their process groups and control channels.
control_channel: small messages between the ranks on the CPU.
agreement: the decision of all ranks before each step.
shared_windows: each rank's share of the windows, drawn one step ahead.
lockstep: the same work at the same time outside of steps, such as an evaluation.
rank_consistency: checks that model, data and optimizers are equal on all ranks.
replicas: broadcasts of weights and buffers (strategy ddp).
reducer: the all-reduce of gradients during the backward pass (strategy ddp).
backward_mean: the same for modules in a training loop that is not roost's.
fsdp: a runner whose weights are sharded over the ranks (strategy fsdp).
sharded_tensors: tensors of which each rank holds some rows.
"""
