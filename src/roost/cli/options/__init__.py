"""Options that several commands share. Each module adds options to a command, and reads them from its
arguments.

checkpoint_option: `-c` of the commands that load a checkpoint
device_option: `--device` and `-CPU`
rank_options: `--devices`, `-DDP` and other options about processes, and `--time-limit`
remote_option: `--remote`, the remote copy of a new package
evaluation_options: `--checkpoints`, `--variants` and others that say what is evaluated
program_options: a program after `--`, and the options that apply to it
trust_option: `--trust`
steal_option: `--steal`
follow_options: `--detach` and `--pdb`
resource_options: `--gpus`, `--priority` and all other options of a task
session_options: all of these, for the commands that start a session
config_help: `-c` and `-f`; `CONFIG --help` with the options that the config declares
config_display: `--explain` and `--print-config`
"""
