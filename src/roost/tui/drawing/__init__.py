"""How things look, as lines of text, without a terminal.

palette: colours: dark, light, and none
styled_text: untrusted output with its colours; cells of a fixed width
spark_line: values as blocks, shares as bars
curve_panel: curves with axes
pictures: pictures as half blocks, shades or sixel
ascii_filter: for terminals without UTF-8
"""
