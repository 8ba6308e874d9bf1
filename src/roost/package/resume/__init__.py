"""What a session needs to go on exactly.

In reading order:

environment: software and hardware of a run, and their differences
resume_gate: what may change when a run continues
"""
