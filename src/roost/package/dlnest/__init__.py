"""Packages of DLNest's contract.

original_folder: recognises packages that DLNest's own programs wrote
original_checkpoint: their checkpoints
original_package: packages that DLNest's own programs wrote, as roost reads them
named_paths: the files that a config of that contract names, and their places in a package
"""
