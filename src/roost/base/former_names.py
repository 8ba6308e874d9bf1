"""Modules by the names that earlier versions documented.

A package holds a copy of its project's code, so that code must import under every later version. A module
that the docs once named and that has moved since is listed in `FORMER_NAMES`; nothing else of roost imports
it.
"""

# Standard library only

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER_NAMES = {
    "roost.train.average": "roost.train.optim.weight_average",
    "roost.train.plans": "roost.train.data.plans",
    "roost.train.plans.plan": "roost.train.data.plans.batch_plan",
    "roost.train.rank_state": "roost.train.checkpointing.rank_state",
    "roost.train.seeding": "roost.train.step.seeding",
    "roost.train.simulated_memory": "roost.train.model.simulated_memory",
}


class FormerNames:
    """A finder and loader for the end of ``sys.meta_path``, reached only by names that exist nowhere else."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of a former name, or None."""
        if name not in FORMER_NAMES:
            return None
        is_package = any(other.startswith(f"{name}.") for other in FORMER_NAMES)
        return ModuleSpec(name, FormerNames, is_package=is_package)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leaves the creation of the module to Python."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Copies the names of the present module: its classes and functions are the same objects."""
        present = importlib.import_module(FORMER_NAMES[module.__name__])
        names = {name: value for name, value in vars(present).items() if not name.startswith("__")}
        module.__dict__.update(names)


def install() -> None:
    """Makes former names importable in this process."""
    if FormerNames not in sys.meta_path:
        sys.meta_path.append(FormerNames)
