"""Floor 1: the settings of a run, from files and overrides to typed settings and objects.

run_settings: the settings that runs of both contracts have
settings: all native settings: types, defaults, help, and the checks of a merged config
sections: the structs of the sections
step_modes: the step modes and their consequences
section_schema: reading structs from values; keys, defaults and help of a struct
dlnest: configs of DLNest's contract
values: nested dicts of settings, and the overrides of a command line
layers: files and overrides, merged in layers, with the origin of each setting
interpolation: ``${...}`` in settings
project_folder: the folder of the code of a config
conflicts: settings that contradict each other
other_tools: what people of other training tools write in a config
type_examples: fixes for values of the wrong type
user_options: ``options``, the user's own declared keys
yaml_project_checks: checks of a Runner and a Dataset that a config describes
allowed_classes: the classes and functions that a config may name
call_arguments: arguments of a config against the signature of a class
variants: named arguments of `Runner.test`, from files
objects: classes and functions by their paths, and objects built from them
"""
