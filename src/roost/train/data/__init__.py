"""Data loading: batches of sets, streams and loaders of the user, resumable at any batch.

In reading order:

batches: `Batches`, the interface by which a trainer gets batches.
loader: batches of map-style sets in the order of a plan.
plans: batch plans, the order of the samples.
fetch: the batch for given indices, with seeded random numbers.
sequential_batches: the base of batches without random access.
stream: batches of iterable sets and of `Sampled`.
loader_parts: set, samplers, generators and workers of a loader of the user.
external_loader: batches of a loader of the user, such as torch's DataLoader.
resumable_batches: the batches of a loader for a loop of the user's own.
workers: loader workers and their shared memory.
arrays: `Arrays`, a set of the rows of arrays.
batch_function: `Sampled`, whole batches from one function.
concatenated_set: several map-style sets as one.
sample_labels: ids and groups of the samples of a set.
dataset_size: lengths of sets, which must not change.
batch_sizes: the number of samples in a batch.
batch_slices: slices and concatenates batches.
"""
