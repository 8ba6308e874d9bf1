"""The checkpoints of a package.

In reading order:

- checkpoint: the format of one checkpoint: manifest, digests, writing and reading
- pickled_values: values that only a pickle can hold, and the key that seals them
- part_files: packs states into the files of a checkpoint
- retention: the tracks, and which checkpoints are kept
- checkpoint_store: the lineage, and the newest good checkpoint
- selection: checkpoints selected on a command line
- pruning: what a user has removed on purpose
"""
