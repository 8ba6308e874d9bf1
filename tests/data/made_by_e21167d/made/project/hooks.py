"""A hook of the project's own, with a state of its own."""

import random

import roost


class Asks(roost.Hook):
    """Asks for a validation and a held save now and then, and draws a number of its own."""

    phase, every = roost.Phase.SCHEDULE, "11"

    def __init__(self):
        self.drawn = []

    def on_step(self, trainer):
        self.drawn.append(random.random())
        trainer.request_validate()
        trainer.request_save(hold=True)

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]
