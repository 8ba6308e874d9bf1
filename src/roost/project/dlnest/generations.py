"""The generations of DLNest's contract, recognised by the constructors of a project's classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from roost.base.errors import ContractError
from roost.project.dlnest.classes.dataset_base import DatasetBase
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.project_object import ProcessPlace, ProjectObject, attach
from roost.project.dlnest.classes.runner_base import RunnerBase


class Generation(StrEnum):
    """A generation of the contract, by its first version."""

    V03_2 = "0.3.2"
    """Constructors take ``args``, ``plugins`` and ``status``."""
    V03_0 = "0.3.0"
    """Constructors take ``_envType``, ``rank`` and ``worldSize``; 0.3.1 has the same."""
    V02 = "0.2"
    """Constructors take positional arguments, and there is no ``init``."""


V03_2, V03_0 = Generation.V03_2, Generation.V03_0


class Role(NamedTuple):
    """What one of the three classes of a project is, and what the constructors of each generation take."""

    name: str
    base: type
    """The class of roost from which it derives."""
    keywords: Mapping[Generation, tuple[str, ...]]
    num_positional: int
    """The number of arguments in 0.2."""

    @property
    def expected(self) -> str:
        """The arguments of a constructor that can be trained, for messages."""
        return " or ".join(f"({', '.join(names)}) as in {one}" for one, names in self.keywords.items())


LIFE_CYCLE = Role(
    "life cycle",
    LifeCycleBase,
    {V03_2: ("taskProcess", "plugins", "status"), V03_0: ("taskProcess", "rank")},
    4,
)
DATASET = Role("dataset", DatasetBase, {V03_2: ("args", "plugins", "status"), V03_0: ("_envType",)}, 1)
RUNNER = Role(
    "runner",
    RunnerBase,
    {V03_2: ("args", "plugins", "status"), V03_0: ("_envType", "rank", "worldSize")},
    2,
)
_OLDER = {V03_0: (("rank",), ("worldSize",), ("rank", "worldSize"))}
"""Keywords that earlier versions of a generation did not pass, and that a constructor may therefore lack."""


def generation_of(found: type, role: Role, where: object = None) -> Generation:
    """Returns the generation of a project's class.

    Raises:
        ContractError: Its constructor takes the arguments of no generation.
    """
    if _constructor(found) in (object.__init__, *(vars(base).get("__init__") for base in _bases(found))):
        return Generation.V03_2
    signature = inspect.signature(found)
    for generation in role.keywords:
        if _keywords(signature, role, generation) is not None:
            return generation
    try:
        signature.bind(*[None] * role.num_positional)
    except TypeError:
        raise ContractError(
            f"the constructor of the {role.name} {found.__name__} is of no known generation of the contract",
            received=f"{found.__name__}{signature}",
            where=where,
            fix=f"take {role.expected}; or write no __init__, and use init()",
        ) from None
    return Generation.V02


def construct(
    found: type,
    role: Role,
    generation: Generation,
    *,
    place: ProcessPlace,
    given: Mapping[str, Any],
    positional: tuple[Any, ...] = (),
) -> Any:
    """Constructs an object of a project as its generation does.

    Args:
        found: The class.
        role: What it is.
        generation: Its generation.
        place: The device and the ranks.
        given: The arguments of all generations by name; ``args``, ``plugins`` and ``status`` are also
            attributes of the object before its constructor runs.
        positional: The arguments in 0.2.
    """
    made: Any = object.__new__(found)
    attach(made, given["args"], given["plugins"], given["status"], place)
    if generation is Generation.V02:
        made.__init__(*positional)
        return made
    names = _keywords(inspect.signature(found), role, generation)
    assert names is not None
    made.__init__(**{name: given[name] for name in names})
    return made


def _constructor(found: type) -> object:
    return next((vars(base)["__init__"] for base in found.__mro__ if "__init__" in vars(base)), None)


def _bases(found: type) -> list[type]:
    """Returns roost's own base classes of a project's class."""
    return [base for base in found.__mro__ if issubclass(base, ProjectObject) and _is_roost(base)]


def _is_roost(base: type) -> bool:
    return base.__module__.startswith("roost.")


def _keywords(signature: inspect.Signature, role: Role, generation: Generation) -> tuple[str, ...] | None:
    """Returns the keywords that a generation passes to a constructor; None if it does not take them."""
    every = role.keywords[generation]
    for left_out in ((), *_OLDER.get(generation, ())):
        names = tuple(name for name in every if name not in left_out)
        try:
            signature.bind(**dict.fromkeys(names))
        except TypeError:
            continue
        return names
    return None
