"""Evaluations as text.

evaluation_view: text of `roost evaluate`
evaluation_comparison_view: text of `roost compare --evaluation`
"""
