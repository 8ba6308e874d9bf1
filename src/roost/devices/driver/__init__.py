"""NVIDIA's driver, queried by a process of its own, which may hang.

In reading order:

- nvml: asks that process for the cards and their health
- driver_process: its program
- driver_report: parses its answers
"""
