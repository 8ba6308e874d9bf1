"""A worker as one of several ranks.

rank_environment: rank and world size, from the launcher's variables
rank_join: rendezvous, comparison of the ranks' runs, diagnosis of a lost rank
rank_locations: code locations of all ranks, for that diagnosis
torchrun_launch: the start of one machine's ranks by torchrun
"""
