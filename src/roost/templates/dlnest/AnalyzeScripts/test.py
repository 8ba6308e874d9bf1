"""Prints the last accuracy, and the size of each tensor of the model.

roost analyze Saves/NAME -s test
"""


def experience(self):
    """`self` has .args .runner (and .model, the same) .dataset .log"""
    print(f"accuracy {self.log['accuracy'][-1]:.4f} after {len(self.log['accuracy'])} epochs")
    for name, value in self.runner.model.state_dict().items():
        print(f"{name:12}  {tuple(value.shape)}")
