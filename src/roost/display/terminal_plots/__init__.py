"""Plots as text, for terminals and pipes.

axis_ticks: round numbers on an axis
text_canvas: curves as braille dots in colours, or as letters
terminal_plot: panels with axes, and their legend
parallel_plot: parallel axes of settings and a metric
"""
