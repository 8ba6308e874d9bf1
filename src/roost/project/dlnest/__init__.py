"""Projects in document 000's contract: LifeCycle, Dataset and Runner by its own names.

project_loading: the project of a package, built in the contract's order
classes: the base classes of a project
generations: the versions of the contract, recognised by constructors
module_loading: the project's files as modules
import_names: the names by which a project imports the classes
plugins: functions that run before the project's methods
trained_project: the project with what a checkpoint holds of it
lifecycle_calls: decisions, and methods before and after each part of a run
"""
