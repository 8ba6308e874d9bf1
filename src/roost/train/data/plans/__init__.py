"""Batch plans: which samples make which batch, as pure functions of seed and epoch.

In reading order:

batch_plan: `Plan`, the protocol of all plans; `BatchPlan`, batches of equal size.
permutations: seeded generators, caching and checks that plans share.
length_batches: batches of samples of similar length, limited by samples or tokens.
weighted_sampling: samples drawn with replacement by weight.
sample_columns: checked lengths and weights of samples.
dataset_mixes: plans of several sets: combined, chained, mixed by weight.
virtual_epochs: epochs of another length than one pass.
rank_shards: the part of each batch that one rank takes.
"""
