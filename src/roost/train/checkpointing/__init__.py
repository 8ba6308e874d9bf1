"""Saving and loading the state of a run.

checkpoints: `Checkpoints`, which saves and loads in any training loop.
async_save: the saves of a trainer, during its training.
pending_save: a save in progress, which a thread writes.
staging: the copy of the state that is written.
checkpoint_writer: writes the files and the manifest, all ranks together.
rank_state: the part of a checkpoint that belongs to one rank.
"""
