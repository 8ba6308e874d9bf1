"""The checkpoints of a package.

In reading order:

- checkpoint: the format of one checkpoint: manifest, digests, writing and reading
- part_files: packs states into the files of a checkpoint
- retention: the tracks, and which checkpoints are kept
- checkpoint_store: the lineage, and the newest good checkpoint
- selection: checkpoints selected on a command line
"""
