"""Calls of a project's life cycle: decisions, and the methods before and after each part of a run."""

from __future__ import annotations

from typing import Any

from roost.base.errors import ContractError
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.train.distributed.ranks import ALONE, Ranks

SKIP = "Skip"


class LifeCycleCalls:
    """Calls the methods of a life cycle. Where several ranks call one, rank 0's answer holds for all.

    A method that neither the project nor a plugin defines costs no call and no message between the ranks.

    Args:
        life_cycle: The project's life cycle.
        ranks: The ranks of the run.
    """

    def __init__(self, life_cycle: Any, ranks: Ranks = ALONE) -> None:
        self._life_cycle, self._ranks = life_cycle, ranks
        self._said: set[str] = set()

    def defines(self, name: str) -> bool:
        """Whether the project or a plugin defines a method."""
        return self._defined(name) is not None

    def before(self, name: str, *, this_rank_only: bool = False) -> bool:
        """Calls a method such as "BTrain" and returns whether the part follows: False if it returned "Skip".

        Args:
            name: The method.
            this_rank_only: Whether the other ranks do not call it now.
        """
        method = self._defined(name)
        if method is None:
            return True
        answer = method()
        if isinstance(answer, str) and answer != SKIP and answer.strip().lower() == SKIP.lower():
            self._say_once(f"{name} returned {answer!r}, which skips nothing: only {SKIP!r} does")
        goes_on = not (isinstance(answer, str) and answer == SKIP)
        return goes_on if this_rank_only else self._agreed(goes_on, name)

    def after(self, name: str) -> None:
        """Calls a method such as "ATrain"."""
        method = self._defined(name)
        answer = method() if method is not None else None
        if isinstance(answer, str) and answer == SKIP:
            self._say_once(
                f"{name} returned {SKIP!r}, which skips nothing: only methods before a part can skip it"
            )

    def decide(self, name: str, *arguments: Any) -> bool:
        """Returns a decision such as "needValidation", called with the arguments in DLNest's order; all
        ranks must call this."""
        method = self._defined(name)
        if method is None:
            return bool(getattr(LifeCycleBase, name)(self._life_cycle, *arguments))
        return self._agreed(_truth(method(*arguments), name), name)

    def _defined(self, name: str) -> Any:
        """Returns the method if the project or a plugin defines it, else None."""
        method = getattr(self._life_cycle, name, None)
        is_default = getattr(method, "__func__", None) is getattr(LifeCycleBase, name)
        return None if is_default else method

    def _agreed(self, answer: bool, name: str) -> bool:
        if not self._ranks.are_several:
            return answer
        return bool(self._ranks.control.exchange([int(answer)], name).wait()[0][0])

    def _say_once(self, text: str) -> None:
        if text not in self._said and self._ranks.is_main:
            self._said.add(text)
            print(text, flush=True)


def _truth(answer: Any, name: str) -> bool:
    try:
        return bool(answer)
    except Exception as error:  # such as of a tensor with several elements
        raise ContractError(
            f"{name}() must return True or False: {error}", received=type(answer).__name__
        ) from error
