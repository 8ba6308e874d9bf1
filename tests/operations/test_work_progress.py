"""Progress of work on many things."""

from __future__ import annotations

from roost.operations import work_progress


def test_each_thing_is_reported_to_the_function_that_shows() -> None:
    seen: list[tuple[str, int, int]] = []
    with work_progress.shown_by(lambda *report: seen.append(report)):
        assert list(work_progress.track(["a", "b"], "reading")) == ["a", "b"]
        work_progress.report("moving", 3, 4)
    assert seen == [("reading", 0, 2), ("reading", 1, 2), ("reading", 2, 2), ("moving", 3, 4)]


def test_without_one_nothing_is_shown() -> None:
    assert list(work_progress.track({"a": 1}, "reading")) == ["a"]
    work_progress.report("moving", 1, 1)
