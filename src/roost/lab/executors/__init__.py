"""Executors: start the attempts of tasks, report their status, and stop them.

executor: the protocol, and the status of an attempt
local_executor: this machine, with one supervisor for each task
"""
