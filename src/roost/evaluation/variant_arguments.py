"""The arguments of variants, checked against the signature of `Runner.test` before anything is computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from roost.base.errors import ContractError
from roost.base.text.suggestions import did_you_mean
from roost.project.contract import Runner


def require_arguments(runner: type[Runner], variants: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that `Runner.test` takes the arguments of all variants; its default passes them to `evaluate`.

    Args:
        runner: The class of the Runner.
        variants: The arguments by the names of the variants.

    Raises:
        ContractError: It does not; the message names the argument.
    """
    test = runner.evaluate if getattr(runner.test, "is_default", False) else runner.test
    try:
        parameters = list(inspect.signature(test).parameters.values())
    except (TypeError, ValueError):
        return
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    own = [one.name for one in parameters[:2]]
    taken = [one.name for one in parameters[2:] if one.kind is not inspect.Parameter.VAR_POSITIONAL]
    for variant, arguments in variants.items():
        for name, value in arguments.items():
            if name in own or not (takes_all or name in taken):
                takes = f"it takes {', '.join(taken)}" if taken else "it takes no arguments of variants"
                raise ContractError(
                    f"the variant {variant} has an argument that {_called(test)} does not take: {takes}",
                    setting=name,
                    received=value,
                    fix=f"{did_you_mean(name, taken)}correct the file of variants, or write "
                    "`def test(self, batch, **variant)` in your Runner",
                )


def _called(test: Callable[..., Any]) -> str:
    return f"{getattr(test, '__qualname__', 'test')}()"
