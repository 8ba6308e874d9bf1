"""Evaluation: every selected checkpoint with every variant on every test set, sample by sample.

In reading order:

- file_writer: the files of samples, through a bounded pool of threads
- bootstrap: intervals of a mean
- summary: the summary of a cell
- reports: Markdown and HTML
"""
