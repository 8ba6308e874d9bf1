"""Prints the modules of the network: type, output shape for one sample, number of parameters.

roost analyze runs/NAME -s show_model
"""

import torch


@torch.no_grad()
def experience(self):
    """Runs one validation batch through the model, and records the output shape of each module."""
    rows = []

    def record(module, _, output):
        if not list(module.children()):
            shape = tuple(output.shape[1:])
            rows.append(
                (names[module], type(module).__name__, shape, sum(p.numel() for p in module.parameters()))
            )

    names = {module: name for name, module in self.model.named_modules()}
    hooks = [module.register_forward_hook(record) for module in names]
    self.model.evaluate(next(iter(self.batches("valid"))))
    for hook in hooks:
        hook.remove()
    for name, kind, shape, count in rows:
        print(f"{name:12}  {kind:12}  {' x '.join(map(str, shape)):14}  {count:>9,}")
    total = sum(p.numel() for p in self.model.parameters())
    print(f"{'parameters':44}  {total:>9,}")
    return {"parameters": total}
