"""Retention as what it is, a pure function: properties over any history, branches included."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roost.config.sections.checkpoint import CheckpointSettings
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.retention import BestRule, RetentionPolicy


def history(*saves: dict[str, Any]) -> list[Manifest]:
    """Saves in order of their ids; ``parent`` says on which a save goes on, the one before it otherwise."""
    infos: dict[int, Manifest] = {}
    for id, save in enumerate(saves):
        parent = save.pop("parent", id - 1 if id else None)
        line = checkpoint.lineage_after(infos.get(parent) if parent is not None else None, id)
        infos[id] = Manifest(id=id, step=id, epoch=0, batch=0, parent=parent, line=line, **save)
    return list(infos.values())


values = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]))
saves = st.lists(
    st.tuples(st.booleans(), st.booleans(), values, st.one_of(st.none(), st.none(), st.integers(0, 5))),
    max_size=15,
)
policies = st.builds(
    RetentionPolicy,
    fast=st.integers(0, 4),
    slow=st.integers(0, 3),
    slow_every=st.integers(1, 4),
    held=st.integers(0, 2),
    best=st.lists(
        st.builds(
            BestRule, monitor=st.just("loss"), mode=st.sampled_from(["min", "max"]), top_k=st.integers(1, 3)
        ),
        max_size=2,
    ).map(tuple),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Manifest]:
    made, counter = [], 0
    for id, (scheduled, held, value, back) in enumerate(draw(saves)):
        save: dict[str, Any] = {"held": held, "metrics": {} if value is None else {"loss": value}}
        if scheduled:
            save["scheduled"], counter = counter, counter + 1
        if back is not None and id > back:
            save["parent"] = id - 1 - back
        made.append(save)
    return history(*made)


def ancestors(infos: list[Manifest], id: int) -> list[int]:
    by_id = {info.id: info for info in infos}
    found = []
    at: int | None = id
    while at is not None:
        found.append(at)
        at = by_id[at].parent
    return found[::-1]


@given(histories())
def test_a_line_is_the_chain_of_parents(infos: list[Manifest]) -> None:
    for info in infos:
        assert [one.id for one in retention.lineage(infos, tip=info.id)] == ancestors(infos, info.id)
    assert retention.lineage(infos) == (retention.lineage(infos, tip=len(infos) - 1) if infos else [])


@given(histories(), policies)
def test_the_newest_two_of_the_line_and_all_other_lines_stay(
    infos: list[Manifest], policy: RetentionPolicy
) -> None:
    kept = retention.retained_ids(infos, policy)
    line = [info.id for info in retention.lineage(infos)]
    assert set(line[-2:]) <= kept
    assert {info.id for info in infos} - set(line) <= kept
    assert kept <= {info.id for info in infos}
    for ids in retention.track_ids(infos, policy).values():
        assert ids == sorted(set(ids)) and set(ids) <= kept & set(line)


@given(histories(), policies)
def test_tracks_hold_what_their_rules_say(infos: list[Manifest], policy: RetentionPolicy) -> None:
    line = retention.lineage(infos)
    tracks = retention.track_ids(infos, policy)
    assert tracks["fast"] == [info.id for info in line][max(0, len(line) - policy.fast) :]
    held = [info.id for info in line if info.held]
    assert tracks["held"] == held[max(0, len(held) - policy.held) :]
    slow = [i.id for i in line if i.scheduled is not None and i.scheduled % policy.slow_every == 0]
    assert tracks["slow"] == slow[max(0, len(slow) - policy.slow) :]
    finite = [i for i in line if "loss" in i.metrics and math.isfinite(i.metrics["loss"])]
    best: set[int] = set()
    for rule in policy.best:
        sign = 1 if rule.mode == "min" else -1
        best |= {i.id for i in sorted(finite, key=lambda i: sign * i.metrics["loss"])[: rule.top_k]}
    assert tracks["best"] == sorted(best)


@given(histories(), policies)
def test_nothing_is_changed_and_asking_again_keeps_the_same(
    infos: list[Manifest], policy: RetentionPolicy
) -> None:
    """What stays after a removal would stay again: pruned parents do not shorten a line."""
    before = repr(infos)
    kept = retention.retained_ids(infos, policy)
    assert repr(infos) == before
    left = [info for info in infos if info.id in kept]
    assert retention.retained_ids(left, policy) == kept
    assert retention.track_ids(left, policy) == retention.track_ids(infos, policy)
    assert retention.retained_ids(list(reversed(left)), policy) == kept


@given(histories(), policies, st.integers(0, 20))
def test_a_run_that_prunes_after_each_save_keeps_what_it_may(
    infos: list[Manifest], policy: RetentionPolicy, lost: int
) -> None:
    """As in a run: one comes, then what no track keeps goes. The tracks come out as if nothing had gone."""
    disk: list[Manifest] = []
    for info in infos:
        if info.parent is not None and all(one.id != info.parent for one in disk):
            return  # a removed checkpoint has no branches
        disk.append(info)
        kept = retention.retained_ids(disk, policy)
        disk = [one for one in disk if one.id in kept]
        assert disk[-1] == info
    straight = all(info.parent in (None, info.id - 1) for info in infos)
    if straight:
        assert retention.track_ids(disk, policy) == retention.track_ids(infos, policy)


def test_dilation_counts_scheduled_saves_alone() -> None:
    # A best between scheduled ones (None) does not shift which are slow: every second scheduled one.
    infos = history(*({"scheduled": n} for n in (0, None, 1, None, None, 2, 3, 4)))
    policy = RetentionPolicy(fast=0, slow=10, slow_every=2, held=0)
    assert retention.track_ids(infos, policy)["slow"] == [0, 5, 7]
    assert retention.retained_ids(infos, policy) == {0, 5, 6, 7}


def test_saves_that_are_not_scheduled_may_leave_the_fast_track_alone() -> None:
    infos = history(*({"scheduled": n} for n in (0, None, 1, None, None, None)))
    policy = RetentionPolicy(fast=1, held=0, only_scheduled=True)
    assert retention.track_ids(infos, policy)["fast"] == [2]
    assert retention.retained_ids(infos, policy) == {2, 4, 5}


def test_of_equals_the_earlier_is_best_and_nan_never_is() -> None:
    infos = history(*({"metrics": {"loss": v}} for v in (math.nan, 0.5, 0.3, 0.3, math.inf, -math.inf, 0.4)))
    ids = [info.id for info in retention.best_checkpoints(infos, BestRule(monitor="loss", top_k=3))]
    assert ids == [2, 3, 6]
    assert [
        i.id for i in retention.best_checkpoints(infos, BestRule(monitor="loss", mode="max", top_k=9))
    ] == [1, 6, 2, 3]
    assert retention.best_checkpoints(infos, BestRule(monitor="accuracy")) == []


def test_going_on_from_an_older_one_starts_a_line_and_keeps_the_other() -> None:
    infos = history({}, {}, {}, {}, {"parent": 1}, {})  # continue -c 1 saved 4, then 5
    assert [info.id for info in retention.lineage(infos)] == [0, 1, 4, 5]
    assert [info.id for info in retention.lineage(infos, tip=3)] == [0, 1, 2, 3]
    assert retention.retained_ids(infos, RetentionPolicy(fast=2, held=0)) == {2, 3, 4, 5}
    left = [info for info in infos if info.id != 1]  # the parent itself may go
    assert [info.id for info in retention.lineage(left)] == [0, 4, 5]


def test_a_best_of_another_line_is_not_best_of_this_one() -> None:
    infos = history(
        {"metrics": {"loss": 0.9}}, {"metrics": {"loss": 0.1}}, {"parent": 0, "metrics": {"loss": 0.5}}
    )
    assert retention.track_ids(infos, RetentionPolicy(best=(BestRule(monitor="loss"),)))["best"] == [2]


def test_nothing_gives_nothing() -> None:
    assert retention.lineage([]) == [] and retention.retained_ids([], RetentionPolicy()) == set()
    assert retention.lineage(history({}), tip=5) == []


def test_the_default_policy_is_that_of_the_settings() -> None:
    assert RetentionPolicy() == retention.policy_from_settings(CheckpointSettings())
