"""Samples of the machine, once a second: its cards and its host, in one file that all sessions read.

In reading order:

- machine_columns: what a sample has
- host_counters: reads the host from /proc
- card_process: the program that asks the cards, which can hang
- card_query: asks that program without waiting for it
- sample_ring: the file of samples: the newest ones, and a day at growing intervals
- machine_sampler: the one process of the machine that samples, and its election
"""
