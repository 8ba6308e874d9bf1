"""Prints the network and the number of its parameters.

roost analyze Saves/NAME -s showModel
"""


def experience(self):
    """`self` has .args .runner (and .model, the same) .dataset .log"""
    net = self.runner.model
    print(net)
    print(f"{sum(one.numel() for one in net.parameters()):,} parameters")
