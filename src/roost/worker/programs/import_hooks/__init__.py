"""A folder for the PYTHONPATH of programs.

sitecustomize: reports the calls of loggers; Python imports it at the start of a program
"""
