"""Simulation of the lab: its scheduling policy in virtual time.

virtual_lab: the policy with tasks that only take time
simulate: the operation `roost simulate`, from a history of tasks to waiting times
"""
