"""Warm starts: guards and workers that are forked from a template process, which has its imports done.

environment_key: a name for all that a process inherits at its start
template_process: the template process: it forks a guard for each request
torch_template: the template process that has imported torch, too
forked_worker: how a forked child becomes a worker without exec
template_client: asks a template process for a guard
template_pool: the template processes that a daemon keeps
"""
