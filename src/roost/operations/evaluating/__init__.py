"""Evaluations of a package.

In reading order:

- evaluation_request: what is asked, checked against the package, and the name of its folder
- evaluate: begins an evaluation, or goes on with it
- named_evaluations: the cells that a word on a command line names
"""
