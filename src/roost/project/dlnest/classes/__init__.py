"""The base classes of DLNest's contract, with its names.

project_object: the part that they share
running_status: the state of a run, as they see it
life_cycle: decisions, and methods before and after each part of a run
dataset_base: the dataset
runner_base: the runner
registered_modules: the modules of a runner and their numbers in checkpoints
torch_runner: a runner with torch modules
"""
