"""Notebooks: the magics ``%roost`` and ``%%roost``, and the view of a run in a cell.

magic: ``%load_ext roost``; runs a command of the command line in the kernel
cell_stream: what a command prints, in the cell
cell_screen: the screen of a followed run: position, metrics, curves, output
curve_chart: the curves as a small SVG
"""
