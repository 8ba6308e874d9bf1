"""Programs for DLNest, and its own programs.

__main__: ``python -m roost.compat.dlnest SCRIPT.py ARGS...``, a script that imports DLNest
command_line: DLNest's own command lines as commands of roost
Server, Client, Simple, Local, Run, Analyze: ``python -m roost.compat.dlnest.NAME``, for ``DLNest.NAME`` there
"""
