"""The output file of a session and the limit of its size.

output_file: opens the output, appends roost's own lines, reads the last lines
output_cap: keeps the first and the last part of an output that exceeds its limit
file_growth: waits for the next write into a file
"""
