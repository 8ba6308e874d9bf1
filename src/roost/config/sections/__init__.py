"""The structs of the sections of a config.

field_types: types and help texts of fields
data: ``data``
staging: ``data.stage``
optimizers: ``optimizers``
checkpoint: ``checkpoint``
limits: ``limits``
requirements: ``require``
init_from: ``init_from``
monitoring: ``early_stopping``, ``averages``, ``statistics`` and ``profile``
mirrors: ``mirrors``
remote: ``remote``
yaml_project: ``runner``, ``dataset``, ``hooks`` and ``options`` as sections
"""
