"""The model as a torch module: its parameters, its complete state, its memory. In reading order:

parameters: parameters by name, selected by globs, and frozen
nested_tensors: the tensors in a batch, an output or a state, and their shapes as text
module_state: the complete state of a module for a checkpoint
model_summary: the table of modules, shapes and parameters
memory_estimate: an estimate of the memory of a step
peak_gpu_memory: the peak memory of torch's allocator
simulated_memory: simulated GPU memory, for a lab without a GPU
"""
