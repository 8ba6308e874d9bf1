"""Text of comparisons.

comparison_sections: the parts of a comparison, as text or as Markdown
comparison_view: text of `roost compare`
"""
