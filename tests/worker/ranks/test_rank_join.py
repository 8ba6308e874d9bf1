from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, PeerLost, RoostError
from roost.base.system.worker_protocol import RENDEZVOUS_VARIABLE
from roost.config.settings import Settings, parse_settings
from roost.package.package import PackageFolder
from roost.train.distributed.ranks import ALONE, Ranks
from roost.worker.ranks import rank_join
from roost.worker.ranks.rank_environment import RankEnvironment
from tests.messages import Messages
from tests.train.team import team


def settings(**own: Any) -> Settings:
    return parse_settings({"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, **own})


def package(folder: Path, values: Mapping[str, Any]) -> PackageFolder:
    return PackageFolder.create(folder, name="one", values=dict(values))


def compared(ranks: Ranks, one: PackageFolder) -> str:
    try:
        rank_join.require_same_run(one, ranks)
    except (ConfigError, PeerLost) as error:
        return f"{type(error).__name__}: {error.message}"
    return ""


def test_a_single_process_joins_nothing() -> None:
    assert rank_join.join(None, settings(), "cpu") is ALONE


def test_ranks_with_the_same_run_before_them_go_on(tmp_path: Path) -> None:
    one = package(tmp_path, {"lr": 0.1})
    assert team(3, lambda ranks: compared(ranks, one)) == ["", "", ""]


def test_other_settings_are_reported_once_and_by_rank_0(tmp_path: Path, messages: Messages) -> None:
    """As of a package that was copied to another machine, and changed there."""
    one, other = package(tmp_path / "a", {"lr": 0.1}), package(tmp_path / "b", {"lr": 0.2})
    first, second, third = team(3, lambda ranks: compared(ranks, other if ranks.rank == 2 else one))
    assert re.match("ConfigError: rank 2 .*rank 0", first)
    assert second == third and second.startswith("PeerLost: rank 2 ")
    messages.check(second)


def test_a_rank_that_never_comes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, RENDEZVOUS_VARIABLE, str(tmp_path / "store"))
    with pytest.raises(RoostError, match=r"rank 0 .* 1"):
        rank_join.join(RankEnvironment(0, 2, 0), settings(rank_timeout="1s"), "cpu")


def lost(ranks: Ranks, end: Callable[[Ranks], None]) -> str:
    try:
        with rank_join.diagnosing_lost_ranks(ranks, settings(rank_timeout="9s"), Path(__file__).parent):
            end(ranks)
    except (PeerLost, KeyError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_rank_that_does_not_answer_is_named(messages: Messages) -> None:
    """By each whose error says only that another is gone; the rank that failed reports its own error."""

    def hangs(ranks: Ranks) -> None:
        if ranks.rank == 0:
            raise PeerLost("another rank is gone")
        if ranks.rank == 2:
            raise KeyError("mine")

    first, _, third = team(3, lambda ranks: lost(ranks, hangs))
    assert first.startswith("PeerLost: rank 1 ") and "9s (rank_timeout)" in first
    assert third == "KeyError: 'mine'"
    messages.check(first)


def test_where_all_answer_each_reports_its_own() -> None:
    def fails(ranks: Ranks) -> None:
        raise KeyError("mine") if ranks.rank == 1 else PeerLost("rank 1 has failed")

    assert team(2, lambda ranks: lost(ranks, fails)) == ["PeerLost: rank 1 has failed", "KeyError: 'mine'"]
