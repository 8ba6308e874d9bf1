"""Text in messages: formatting and parsing of sizes, times and names.

byte_sizes: sizes of files and memory
durations: durations
counts: numbers of things
timestamps: times, parsed and formatted
word_list: lists of names
metric_direction: whether smaller or larger values of a metric are better
typed_path: paths as a person writes them
suggestions: suggestions for misspelled names
terminal_text: untrusted text for a terminal
terminal_styles: the styles in a text for a terminal
left_out_line: the line in place of output that is not kept
"""
