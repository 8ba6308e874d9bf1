"""Analysis: loads the trained model of a package, runs a function or script with it, and stores the result.

In reading order:

notebook_analysis: `roost.analyze`, an analysis in this process.
record_analysis: the same by the name and arguments of DLNest.
analysis_run: one analysis from loading to the result.
analysis_session: the argument ``self`` of a script.
project_analysis: the same for a package of DLNest's contract.
preconditions: checks before an analysis.
script: finds, checks and imports a script.
analysis_folder: the folder of an analysis, and the files that it saves.
result_values: the return value as JSON and files.
result_text: the same as lines for a terminal.
analyzers/: processes that run one script after another.
"""
