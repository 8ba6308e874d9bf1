"""Evaluation: every selected checkpoint with every variant on every test set, sample by sample.

In reading order:

- evaluated_set: a set, with the ids and groups of its samples, and its batches
- cell: the beginning of a cell: what it is, by digests, and its plan
- cell_run: the loop over the batches of a cell
- sample_values: what `Runner.test` returned, as values of samples
- file_writer: the files of samples, through a bounded pool of threads
- case_inputs: the inputs of the worst and the best cases
- cell_end: the end of a cell, and of the grid
- summaries: the summary of a cell
- grid: all cells of an evaluation, made and changed
- variant_arguments: the check of the arguments of variants
- cell_copies: copies of finished cells
- reports: its report, as Markdown and as a page
- evaluation_data: the rows of a cell as a set
"""
