"""Programs written for other tools, run without changes.

dlnest: scripts that import DLNest, and its own command lines
"""
