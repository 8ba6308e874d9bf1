"""Projects in DLNest's contract: LifeCycle, Dataset and Runner by its own names.

project_loading: the project of a package, built in the contract's order
classes: the base classes of a project
project_classes: the classes of a project
generations: the versions of the contract, recognised by constructors
module_loading: the project's files as modules
import_names: the names by which a project imports the classes
worker_path: the same in processes that multiprocessing starts anew
plugins: functions that run before the project's methods
trained_project: the project with what a checkpoint holds of it
save_package: a package for a program with a loop of its own
lifecycle_calls: decisions, and methods before and after each part of a run
training_loop: the loop over epochs, steps, validations and saves
epoch_batches: the batches of an epoch, from any position
log_recorder: the rows of a run
log_rows: what is new in a log
interval_alarm: the next time at which a row or a save is due
run_state: the parts of a checkpoint
object_attributes: the plain attributes of the project's objects
"""
