"""Floor 0: errors, files, state trees and text, used by every other part. Nothing here imports torch at
import.

errors: the error classes and exit codes
durable: durable writes, the only module that writes files which must survive
safe_read: bounded reading of files that roost may not have written
config_folder: the folder of one user's own files
json_mistake: the mistake in a text that is not JSON
config_files: JSON and YAML files with the line of every key
interval: intervals and durations of settings
limit_defaults: the default limits of a session
strategy: how the ranks of a session share the work
state_tree: the codec of every state: a JSON skeleton and leaves
byte_tensors: tensors and arrays from bytes
safetensors_format: the file format of leaves
exception_record: exceptions as data
traceback_frames: short tracebacks with the project's lines
former_names: imports of modules by the names that earlier versions documented
archives: archives whose content is not trusted, unpacked into folders
text: formatting and parsing of sizes, times and names for messages
session_end: when the machine or the platform ends a session
system: the machine: processes, memory, cores, mounts and the lab's folder
"""
