"""The hook that saves a checkpoint whenever a metric is among the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roost.package.checkpoints.retention import BestRule as Rule
from roost.train.hook import Hook, Phase
from roost.train.hooks.monitor import is_better, monitored_value, worst_value

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Best(Hook):
    """Requests a save at the step of every new best value, so that the best track has exactly those weights.

    Args:
        rules: The metrics to monitor; the retention policy must have the same rules to keep the checkpoints.
    """

    phase = Phase.DECIDE

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = list(rules)
        self.best: list[list[tuple[float, int]]] = [[] for _ in rules]
        """For each rule its pairs (value, step), the best first, at most ``top_k``."""

    def monitors(self, trainer: Trainer) -> dict[str, str]:
        return {_setting(number): rule.monitor for number, rule in enumerate(self.rules)}

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        for number, (rule, found) in enumerate(zip(self.rules, self.best, strict=True)):
            value = monitored_value(results, rule.monitor, setting=_setting(number))
            threshold = found[-1][0] if len(found) == rule.top_k else worst_value(rule.mode)
            if is_better(value, threshold, mode=rule.mode):
                found.append((value, trainer.progress.step))
                # The sort is stable, so of equal values the earlier one remains first.
                found.sort(key=lambda entry: entry[0], reverse=rule.mode == "max")
                del found[rule.top_k :]
                trainer.request_save(best=True)

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": [[*_rule_key(rule), found] for rule, found in zip(self.rules, self.best, strict=True)]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        known = {(monitor, mode): found for monitor, mode, found in state["best"]}
        # The best values by another rule do not apply to this one.
        self.best = [known.get(_rule_key(rule), [])[: rule.top_k] for rule in self.rules]


def _setting(number: int) -> str:
    return f"checkpoint.best.{number}.monitor"


def _rule_key(rule: Rule) -> tuple[str, str]:
    return rule.monitor, rule.mode
