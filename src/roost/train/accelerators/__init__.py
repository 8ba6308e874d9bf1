"""Everything that roost asks torch about a type of device; no other module asks. In reading order:

registry: the accelerator of a device, and which one ``auto`` takes
accelerator: `Accelerator`: the questions, and the answers for a type without a file of its own
cpu: the host itself
cuda: NVIDIA's GPUs, and AMD's, which torch calls CUDA, too
mps: Apple's GPUs
xpu: Intel's GPUs
torch_probe: the process in which `roost doctor` asks torch
device_errors: which errors are those of a device, not of a value
"""
