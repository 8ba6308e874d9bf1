"""The parameters of a module by name: selection by globs, freezing, and a check of which optimizer has
them."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import nn

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match
from roost.base.text.word_list import join_names
from roost.config.settings import Where
from roost.train.optim.optimizer import Optim

_CONDITION = re.compile(r"ndim *(<|<=|>|>=|==) *(\d+)")
"""A condition on the number of a parameter's dimensions; no name of a parameter has such signs."""
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
MAX_LISTED_NAMES = 20
"""Parameters that a message lists; the rest is counted."""


class Parameters:
    """The trainable parameters of a module.

    A parameter that several modules share has its name in the first of them; a glob may match any of its
    names.
    """

    def __init__(self, module: nn.Module) -> None:
        all_names: dict[int, list[str]] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            all_names.setdefault(id(parameter), []).append(name)
        named = dict(module.named_parameters())
        self.trainable = {name: p for name, p in named.items() if p.requires_grad}
        self._names = {name: all_names[id(p)] for name, p in named.items()}
        self._ndims = {name: p.ndim for name, p in named.items()}
        self._module = module

    def matching(
        self, patterns: str | Sequence[str], *, among: Iterable[str], setting: str, where: Where
    ) -> list[str]:
        """Returns the names in ``among`` that a glob or a condition such as ``ndim < 2`` matches, in the
        module's order. Of several, one that begins with ``*`` may match nothing: a line says so.

        Raises:
            ConfigError: Nothing matches, or a glob that begins with a name matches nothing.
        """
        globs, among = [patterns] if isinstance(patterns, str) else list(patterns), list(among)
        unused = [one for one in globs if not any(self._matches(name, one) for name in among)]
        for pattern in unused:
            if len(unused) == len(globs) or not pattern.startswith(("*", "ndim")):
                self._refuse(pattern, among, setting, where)
        for pattern in unused:
            print(f"{setting}: {pattern!r} matches none of the parameters to choose from", flush=True)
        return [name for name in among if any(self._matches(name, pattern) for pattern in globs)]

    def _matches(self, name: str, pattern: str) -> bool:
        if (condition := _CONDITION.fullmatch(pattern.strip())) is not None:
            return bool(_COMPARISONS[condition[1]](self._ndims[name], int(condition[2])))
        return any(fnmatchcase(one, pattern) for one in self._names[name])

    def _refuse(self, pattern: str, among: Sequence[str], setting: str, where: Where) -> None:
        found = [name for name in self._names if self._matches(name, pattern)]
        frozen = [name for name in found if name not in self.trainable]
        prefixes = list(dict.fromkeys(name.partition(".")[0] for name in among))
        examples = [next(name for name in among if name.partition(".")[0] == one) for one in prefixes[:6]]
        fix = f"{_suggestion(pattern, among)}use names such as {', '.join(examples)}"
        if found and len(frozen) == len(found):
            fix = f"it matches only frozen parameters ({join_names(frozen, MAX_LISTED_NAMES)}): {fix}"
        elif found:
            names = join_names(found, MAX_LISTED_NAMES)
            fix = f"choose them in the optimizer's own `params` too ({names}): {fix}"
        raise ConfigError(
            "the glob matches no parameter",
            setting=setting,
            received=pattern,
            where=where(setting),
            fix=fix,
        )

    def sparse(self) -> set[str]:
        """Returns the names of parameters with sparse gradients: of embeddings with ``sparse=True``."""
        return {name for name, owner in self._owned() if getattr(owner, "sparse", False) is True}

    def dense(self) -> set[str]:
        """Returns the names of parameters with certainly dense gradients: of torch's other modules."""
        homes = {name: type(owner).__module__ for name, owner in self._owned()}
        torchs = {name for name, home in homes.items() if home.startswith("torch.nn.modules.")}
        in_containers = {name for name, home in homes.items() if home.endswith(".container")}  # use unknown
        return torchs - in_containers - self.sparse()

    def _owned(self) -> Iterable[tuple[str, nn.Module]]:
        for name, names in self._names.items():
            for one in names:
                yield name, self._module.get_submodule(one.rpartition(".")[0])


def _suggestion(pattern: str, names: Sequence[str]) -> str:
    """Returns the glob that was probably intended, as the beginning of a fix."""
    modules = {name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)}
    if "ndim" in pattern:
        meant: str | None = None if _CONDITION.fullmatch(pattern.strip()) else "ndim < 2"
    elif pattern in modules:
        meant = f"{pattern}.*"
    elif any(fnmatchcase(name, f"*.{pattern}") for name in names):
        meant = f"*.{pattern}"
    else:
        meant = closest_match(pattern, [*names, *(f"{module}.*" for module in sorted(modules))])
    return f"did you mean {meant!r}? " if meant is not None else ""


def check_owners(module: nn.Module, optims: Mapping[str, Optim]) -> None:
    """Prints possible mistakes in the optimizers of ``Runner.optimizers()``, which may be intended: a
    parameter in two optimizers, a parameter in none, a tensor that is not a parameter of the module."""
    names = {id(p): name for name, p in module.named_parameters()}
    owners: dict[str, list[str]] = {name: [] for name, p in module.named_parameters() if p.requires_grad}
    for optimizer, optim in optims.items():
        own = {id(p) for p in optim.parameters}
        for mine in (names[one] for one in own if one in names):
            owners.setdefault(mine, []).append(optimizer)
        if foreign := len([one for one in own if one not in names]):
            what = "1 tensor that is" if foreign == 1 else f"{foreign} tensors that are"
            print(f"optimizer {optimizer!r} has {what} not in the Runner's parameters", flush=True)
    several: dict[str, list[str]] = {}
    for name in owners:
        if len(owners[name]) > 1:
            several.setdefault(" and ".join(map(repr, owners[name])), []).append(name)
    for owner_names, shared in several.items():
        print(f"optimizers {owner_names} share {join_names(shared, MAX_LISTED_NAMES)}", flush=True)
    if free := [name for name, by in owners.items() if not by]:
        print(f"no optimizer has {join_names(free, MAX_LISTED_NAMES)}", flush=True)


def freeze(module: nn.Module, patterns: str | Sequence[str], *, where: Where = lambda key: None) -> list[str]:
    """Sets ``requires_grad`` of parameters to False. Called before optimizers are built, so that none gets
    these parameters.

    Args:
        module: The module whose parameter names the globs match.
        patterns: One glob or several; see `Parameters.matching`.
        where: Returns where the setting ``freeze`` was set, for messages.

    Returns:
        Lines for the output: what is frozen, and which running statistics still change; no line without a
        pattern.

    Raises:
        ConfigError: A glob matches no parameter, or no parameter is left to train.
    """
    globs = [patterns] if isinstance(patterns, str) else list(patterns)
    if not globs:
        return []
    named = dict(module.named_parameters())
    for name in Parameters(module).matching(globs, among=named, setting="freeze", where=where):
        named[name].requires_grad_(False)
    frozen = [p for p in named.values() if not p.requires_grad]
    if len(frozen) == len(named):
        raise ConfigError(
            "nothing is left to train: every parameter is frozen",
            setting="freeze",
            received=patterns,
            where=where("freeze"),
            fix="leave out the parameters that the run must train, such as the last layers",
        )
    tensors = f"{len(frozen)} of {len(named)} parameter tensors"
    values = f"{sum(p.numel() for p in frozen):,} of {sum(p.numel() for p in named.values()):,} values"
    return [f"frozen: {tensors} ({values}): {join_names(globs)}", *_moving_statistics(module)]


def _moving_statistics(module: nn.Module) -> list[str]:
    """Returns a line about normalisations with frozen weights whose running statistics still change."""
    found = []
    for name, part in module.named_modules():
        own = list(part.parameters(recurse=False))
        has_statistics = any(
            buffer is not None and key == "running_mean" for key, buffer in part._buffers.items()
        )
        if has_statistics and own and not any(p.requires_grad for p in own):
            found.append(name)
    if not found:
        return []
    subject = f"{join_names(found)} {'is' if len(found) == 1 else 'are'} frozen"
    return [
        f"{subject}, but the running statistics still change in training: override Runner.train to keep them"
    ]
