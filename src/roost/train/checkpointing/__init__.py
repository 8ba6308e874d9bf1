"""Saving and loading the state of a run. In reading order:

checkpointer: saves the state of a training.
checkpoints: saves and loads in any training loop.
staging: the copy of the state that is written.
late_copies: the tensors that may be copied during the next step.
checkpoint_writer: writes the copy in a thread, all ranks together, and commits it.
rank_state: the part of a checkpoint that belongs to one rank.
"""
