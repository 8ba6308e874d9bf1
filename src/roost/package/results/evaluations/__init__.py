"""Evaluations in a package.

In reading order:

- evaluation_folder: the folders of evaluations and cells, and what their JSON files hold
- evaluation_rows: the rows of a cell
- row_columns: their columns
- arrow_buffers: columns as arrays of Arrow
- row_files: files of rows, as Parquet or JSON lines
"""
