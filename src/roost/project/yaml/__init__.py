"""A project described by a config alone: ``runner`` and ``dataset`` as sections.

yaml_project: the Runner and Dataset classes made from the sections
batch_paths: paths such as ``batch.0`` and ``output.logits``
set_columns: ids and groups of a set
yaml_metrics: metrics of a batch and of a whole set
"""
