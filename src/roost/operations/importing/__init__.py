"""The operation ``import``: packages out of the records of other systems.

import_runs: makes the packages
source_formats: the table of all formats, and which one a source has
imported_run: a run as its reader gives it; rows out of single values
table_files: CSV and Parquet
event_folders: TensorBoard
wandb_runs: W&B, written offline
mlflow_runs: MLflow's file store and its SQLite database
aim_runs: Aim's repository
sqlite_file: opens a SQLite file to be read only
dlnest_packages: packages that DLNest itself wrote
"""
