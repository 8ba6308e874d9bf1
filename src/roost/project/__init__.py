"""From a package to a runner, a dataset and their trainer.

contract: Runner, Dataset and Data, the classes that a project derives from
native_project: imports and builds them from a package
package_context: makes a package's own code importable
trainer_assembly: from the built project to its Trainer
builtin_hooks: the built-in hooks of a run
data_loaders: from Data and the settings to the batches of each split
batch_plans: the plan of each set, from the settings
device_choice: the device of the model
init_from: the initial weights
yaml: a project described by a config alone
dlnest: projects in DLNest's contract
lightning: Lightning's modules and data modules
loaded_model: a trained Runner and its data, for analysis
package_writer: the session in which a program writes to a package
download: roost.download, which tries mirrors in turn and never leaves a partial file
http_transfer: a transfer over http that gives up a slow mirror
transfer_progress: the progress of a transfer
staging: archives that are unpacked to a local disk before the data are built
"""
