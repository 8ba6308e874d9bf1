"""The checkpoints of a package.

In reading order:

- checkpoint: the format of one checkpoint: manifest, digests, writing and reading
- pickled_values: values that only a pickle can hold, and the key that seals them
- part_files: packs states into the files of a checkpoint
- retention: the tracks, and which checkpoints are kept
- checkpoint_store: the lineage, and the newest good checkpoint
- selection: checkpoints selected on a command line
- weight_selectors: weights of checkpoints, means and averages, selected for a grid of evaluations
- pruning: what a user has removed on purpose
"""
