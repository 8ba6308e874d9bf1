from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from roost.base.errors import PeerLost, RanksApart
from roost.train.distributed import control_channel
from roost.train.distributed.ranks import ALONE, Ranks
from roost.worker.ranks import rank_join, rank_locations
from tests.messages import Messages
from tests.train.team import team
from tests.worker.ranks.test_rank_join import settings

HERE = Path(__file__).parent


def test_a_place_is_the_own_line_or_else_what_roost_does(messages: Messages) -> None:
    stack = traceback.extract_stack()
    own, of_roost = stack[-1], traceback.FrameSummary(control_channel.__file__, 1, "wait")
    line = f"test_rank_locations.py:{own.lineno}: stack = traceback.extract_stack()"
    assert rank_locations.code_location([own, of_roost], HERE) == line
    assert "channel.wait" in rank_locations.code_location([own, of_roost], HERE / "other")
    messages.check(rank_locations.code_location([own, of_roost], HERE / "other"))
    messages.check(rank_locations.code_location([], HERE))


def test_a_single_process_asks_no_rank() -> None:
    with rank_locations.LocationResponder(ALONE, HERE):
        assert rank_locations.gather_locations(ALONE, "here", 1.0) == {0: "here"}


def test_a_rank_answers_while_it_waits_and_one_that_is_gone_does_not() -> None:
    def work(ranks: Ranks) -> dict[int, str]:
        if ranks.rank == 2:  # leaves when both others have joined: until then they connect to it
            ranks.store.wait(["joined 0", "joined 1"])
            return {}
        ranks.store.set(f"joined {ranks.rank}", "")
        with rank_locations.LocationResponder(ranks, HERE):
            if ranks.rank == 0:
                found = rank_locations.gather_locations(ranks, "rank 0's place", 1.0)
                ranks.store.set("asked enough", "")
                return found
            ranks.store.wait(["asked enough"])
            return {}

    found = team(3, work)[0]
    assert sorted(found) == [0, 1] and found[0] == "rank 0's place"
    assert found[1].endswith('ranks.store.wait(["asked enough"])')


def test_ranks_that_wait_in_different_groups_learn_where_the_others_are(tmp_path: Path) -> None:
    """No message of one reaches the other: only the timeout ends it."""

    def work(ranks: Ranks) -> str:
        try:
            with rank_join.diagnosing_lost_ranks(ranks, settings(rank_timeout="1s"), HERE):
                if ranks.rank == 1:
                    ranks.store.wait(["asked enough"])  # for a key that is never set
                else:
                    torch.distributed.all_reduce(torch.zeros(1), group=ranks.gradients)
        except (PeerLost, RanksApart) as error:
            ranks.store.set("asked enough", "")
            return f"{type(error).__name__}: {error}"
        return ""

    first, second = team(2, work, timeout_seconds=1.0)
    assert re.match(r"RanksApart: .*1s \(rank_timeout\)", first) and not second
    assert re.search(r"rank 0 .*test_rank_locations\.py:.* rank 1 .*test_rank_locations\.py:", first)
    assert "all_reduce(torch.zeros(1)" in first and 'wait(["asked enough"])' in first
