"""Packages of document 000's contract.

named_paths: the files that a config of that contract names, and their places in a package
"""
