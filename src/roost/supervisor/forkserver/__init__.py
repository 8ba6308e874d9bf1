"""Warm starts: guards and workers that are forked from a process which has its imports done.

environment_key: a name for all that a process inherits at its start
guard_template: the template process that guards are forked from
forked_guard: a guard that was forked, and the request for one
warm_templates: starts and finds the template processes that have imported torch
torch_template: such a template process
forked_worker: how a forked child becomes a worker without exec
"""
