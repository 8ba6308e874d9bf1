"""The summary of a cell.

In reading order:

- bootstrap: intervals of a mean
- summary: statistics of each metric, groups, best and worst cases
- set_metrics: metrics of a whole set, from all rows
"""
