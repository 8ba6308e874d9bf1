"""Known causes of failures: rules that recognise an error and say how to fix it.

cause: a cause, a rule, and the context of a failure
cause_table: all rules, and the search
tensor_causes: shapes, dtypes, gradients and optimizers
nonfinite_causes: NaN and infinity
memory_causes: out of memory, on a GPU or on the host
cuda_causes: GPUs and devices
compile_causes: torch.compile
determinism_causes: deterministic algorithms
loader_causes: loader workers of torch's DataLoader
module_causes: failed imports
file_causes: relative paths and ports
weight_causes: files of weights
"""
