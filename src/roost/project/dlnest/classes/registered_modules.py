"""The modules of a runner in DLNest's contract, with the numbers that its checkpoints give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from roost.base.errors import CheckpointError
from roost.project.dlnest.classes.project_object import ProcessPlace
from roost.train.distributed.backward_mean import BackwardMean

HELD = "held_modules"
"""The key of the modules that have names instead of numbers."""
_PARAMETERS = "parameters"


class RegisteredModules:
    """The modules of a runner, each once, on the run's device.

    A module has a number, by the order of registration. DLNest's programs gave a module a number for
    each registration, so one that was registered twice has two in their checkpoints; those numbers are known
    here, too.

    Args:
        place: The device and the ranks.

    Attributes:
        has_reported: Whether was printed what a loaded checkpoint lacks; it may be loaded again.
    """

    def __init__(self, place: ProcessPlace) -> None:
        self._place = place
        self._modules: list[nn.Module] = []
        self._by_any_call: list[int] = []
        """The module of each number in checkpoints of version 0.3.2: every registration counts."""
        self._by_register: list[int] = []
        """The same of 0.3.0 and 0.3.1: only calls of `register` count."""
        self._held: dict[str, nn.Module] = {}
        """What those programs did not save: modules in lists and dicts, by attribute and key, and
        parameters."""
        self._parameters = nn.ParameterDict()
        self.has_reported = False
        self._has_reported_statistics = False
        self._means: BackwardMean | None = None
        self._synchronized: list[nn.Module] = []

    def register(self, module: nn.Module, *, sync_batch_norm: bool) -> nn.Module:
        """Registers a module by the project's call of `register`, and returns it."""
        number = self.number(module)
        placed = self._placed(module, sync_batch_norm=sync_batch_norm)
        number = self._put(placed, number)
        self._by_register.append(number)
        if self._place.ranks.are_several:
            # 0.3.0 returned torch's DistributedDataParallel, whose inner module projects reach by this name.
            vars(placed).setdefault("module", placed)
        return placed

    def assign(self, module: nn.Module, replaced: nn.Module | None) -> nn.Module:
        """Registers a module by its assignment to an attribute, and returns it.

        Args:
            module: The module.
            replaced: The module that no attribute holds any more; its number goes to the new one.
        """
        number = self.number(module)
        if number is None:
            module = self._placed(module)
            number = self.number(replaced)
        self._put(module, number)
        return module

    def hold(self, modules: Mapping[str, nn.Module], parameters: Mapping[str, nn.Parameter]) -> None:
        """Registers the modules in lists and dicts, by their names, unless they are registered; and the
        parameters that are in no module."""
        self._held = {name: one for name, one in modules.items() if self.number(one) is None}
        if parameters:
            own = {name.replace(".", "/"): one for name, one in parameters.items()}
            if [*map(id, self._parameters.values())] != [*map(id, own.values())]:
                self._parameters = nn.ParameterDict(own)
            self._held[_PARAMETERS] = self._parameters
        for module in self._held.values():
            self._placed(module)

    def state_dict(self) -> dict[Any, Any]:
        """Returns the states: by number, and under `HELD` by name."""
        held = {name: module.state_dict() for name, module in self._held.items()}
        numbered = {number: module.state_dict() for number, module in enumerate(self._modules)}
        return {**numbered, HELD: held} if held else numbered

    def load_state_dict(self, state: Mapping[Any, Any]) -> None:
        """Loads what `state_dict` returned, or a checkpoint of DLNest's own programs.

        Raises:
            CheckpointError: The number of modules is another one.
        """
        numbers = sorted(key for key in state if isinstance(key, int))
        orders = (list(range(len(self._modules))), self._by_any_call, self._by_register)
        order = next((order for order in orders if len(order) == len(numbers)), None)
        if order is None:
            raise CheckpointError(
                f"the checkpoint has {len(numbers)} modules, and the runner registers {len(self._modules)}",
                fix="register the same modules in the same order",
            )
        # The last number of a module counts: the earlier ones may be those of a module that it has replaced.
        for number, key in dict(zip(order, numbers, strict=True)).items():
            _load(self._modules[number], state[key])
        for name, one in state.get(HELD, {}).items():
            if name not in self._held:
                raise CheckpointError(
                    "the checkpoint has a module that the runner does not hold", received=name
                )
            _load(self._held[name], one)

    def synchronize(self) -> None:
        """Makes the gradients of all modules means over the ranks from now on, and their buffers equal now;
        with one process nothing. All ranks call it after the initialization and after each step."""
        if not self._place.ranks.are_several:
            return
        if self._means is None:
            self._means = BackwardMean(self._place.ranks)
        for module in (*self._modules, *self._held.values()):
            # A loss without parameters has nothing to synchronize.
            if not any(module is one for one in self._synchronized) and any(True for _ in _tensors(module)):
                self._means.add(module)
                self._synchronized.append(module)
        self._means.refresh()
        self._means.synchronize_buffers()

    def number(self, module: nn.Module | None) -> int | None:
        """Returns the number of a module; None if it is not registered."""
        return next((number for number, one in enumerate(self._modules) if one is module), None)

    def _put(self, module: nn.Module, number: int | None) -> int:
        """Gives a module this number, or the next one; returns it."""
        if number is None:
            number = len(self._modules)
            self._modules.append(module)
        self._modules[number] = module
        self._by_any_call.append(number)
        return number

    def _placed(self, module: nn.Module, *, sync_batch_norm: bool = False) -> nn.Module:
        device, ranks, for_all = self._place
        if ranks.are_several and (sync_batch_norm or for_all):
            module = self._with_statistics_of_all_ranks(module)
        return module.to(device)

    def _with_statistics_of_all_ranks(self, module: nn.Module) -> nn.Module:
        if self._place.device.type != "cpu":
            convert: Callable[[nn.Module], nn.Module] = nn.SyncBatchNorm.convert_sync_batchnorm
            return convert(module)
        if self._place.ranks.is_main and not self._has_reported_statistics:
            print(
                "batch statistics are those of each rank: torch shares them on accelerators only", flush=True
            )
        self._has_reported_statistics = True
        return module


def _tensors(module: nn.Module) -> Iterator[object]:
    yield from module.parameters()
    yield from module.buffers()


def _load(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Loads a module's state, which may be that of torch's DistributedDataParallel around it."""
    prefix = "module."
    own = module.state_dict()
    if (
        own
        and state
        and all(key.startswith(prefix) for key in state)
        and not any(key.startswith(prefix) for key in own)
    ):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    module.load_state_dict(state)
