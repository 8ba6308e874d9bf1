"""Runs a script that imports DLNest.

__main__: ``python -m roost.compat.dlnest SCRIPT.py ARGS...``
"""
