"""The setting ``freeze``: parameters that are not trained."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from roost.base.errors import ConfigError
from roost.base.text.word_list import join_names
from roost.config.settings import Where
from roost.train.model.parameters import Parameters


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
