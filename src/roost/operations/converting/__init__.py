"""Operations that convert the configs of other trainers into projects of roost.

convert: converts a config with its code and weights into a folder
speechain_config: the settings of SpeeChain's experiment configs
speechain_data: the sets and batches of its iterators
speechain_optimizers: its optimizers with their schedules
speechain_values: its YAML tags, and its lists and mappings in texts
cornernet_config: the settings of CornerNet's JSON configs
conversion: the settings, own keys and notes that a conversion collects
config_text: a config as YAML with comments
conversion_report: the Markdown report
weights_file: weights as a safetensors file, written by a process that has torch
project_files: the code of the projects that are written
"""
