"""Packages and runs from Python: what `import roost` gives for them.

package_api: roost.Package: creates, writes, reads and loads one package
system_table: what cards, processes and host of a package did, as columns
script_run: roost.init: a package for a training loop of the user's own
run_collection: roost.runs: many runs, selected by a query
tables: tables for pandas, Arrow and notebooks
"""
