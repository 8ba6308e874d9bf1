"""Packages and runs from Python: what `import roost` gives for them.

package_api: roost.Package: creates, writes, reads and loads one package
run_collection: roost.runs: many runs, selected by a query
tables: tables for pandas, Arrow and notebooks
"""
