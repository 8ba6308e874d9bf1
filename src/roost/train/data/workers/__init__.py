"""Loader workers: processes that fetch batches and pass them to the training process through shared memory.

In reading order:

worker_pool: loader workers, their tasks and answers; reused by later iterations.
worker_handle: one worker, seen from the process that started it.
loader_worker: the main loop of a worker process.
batch_codec: values as bytes in shared memory, decoded as views.
shared_memory: one growing piece of shared memory.
worker_status: the progress of each worker, in shared memory.
worker_errors: errors about workers, and the transport of their exceptions.
worker_count: ``num_workers: auto``, chosen by measuring.
worker_benchmark: measures batches in temporary workers.
stream_shard: the part of a stream that one worker draws.
stream_order: the order in which batches come from the shards.
seeding_probe: checks in another process whether a set follows the seeds.
"""
