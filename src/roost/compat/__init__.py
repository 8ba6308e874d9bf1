"""Programs written for other tools, run without changes, and import names of theirs.

dlnest: scripts that import DLNest, and its own command lines
wandb: W&B's calls, recorded in a package
tensorboard: TensorBoard's SummaryWriter, recorded in a package
lightning: Lightning's modules and data modules as Runners and Datasets
unsupported_calls: what has no counterpart, named once
media_values: pictures and names as a package holds them
"""
