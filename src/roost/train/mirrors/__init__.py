"""Mirrors: copies of the rows and media of a run in CSV files, TensorBoard, W&B or MLflow, by a process each.

mirror_kinds: the kinds of mirrors, their libraries and settings.
mirror_process: the task of a mirror's process, and its start.
__main__: the process of one mirror.
mirror_completeness: whether a mirror has all records of a package.
sink_retry: sends to one sink and retries after failures.
record_feed: sends the records and media of a package to a sink, once and in order.
sink: the protocol of a sink, and the run that it shows.
csv_sink: writes a CSV table.
tensorboard_sink: writes TensorBoard's event files.
event_files: reads the scalars of event files, also while they are written.
wandb_sink: writes a W&B run.
wandb_offline_log: reads the file of a W&B run that is not uploaded.
mlflow_sink: writes an MLflow run.
"""
