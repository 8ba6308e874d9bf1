"""Which settings change the memory, by what was measured."""

from __future__ import annotations

import pytest

from roost.lab.memory.memory_features import MemoryFeatures
from roost.lab.memory.run_comparison import RunComparison, SimilarRuns
from roost.lab.queue.history import MemoryPeak


def features(*, code: str = "c1", sweep: str = "", **settings: object) -> MemoryFeatures:
    return MemoryFeatures("f", code, {key: str(value) for key, value in settings.items()}, sweep)


def peak(mb: float, of: MemoryFeatures, *, scale: float = 8.0) -> MemoryPeak:
    return MemoryPeak(of.to_text(), scale, mb, 400.0, 1, "H100", 0.0)


def sizes(found: SimilarRuns) -> list[float]:
    return [one.peak_mb for one in found.peaks]


def test_a_sweep_shares_what_its_first_run_has_shown_until_measurements_differ() -> None:
    first = peak(5_000, features(sweep="s", nap=0.02, width=64))
    comparison = RunComparison([first])
    other = comparison.similar_to(features(sweep="s", nap=0.5, width=64))
    assert sizes(other) == [5_000] and other.widening > 1 and "sweep" in other.difference
    assert sizes(comparison.similar_to(features(nap=0.5, width=64))) == [], "another task"
    assert sizes(comparison.similar_to(features(sweep="t", nap=0.5, width=64))) == []
    wide = peak(9_000, features(sweep="s", nap=0.02, width=128))
    comparison = RunComparison([first, wide])
    assert comparison.relevant == {"width"}
    assert sizes(comparison.similar_to(features(sweep="s", nap=0.7, width=128))) == [9_000]
    assert sizes(comparison.similar_to(features(sweep="s", nap=0.7, width=256))) == [], "its peak may differ"


def test_a_setting_that_never_changed_the_peak_no_longer_counts_anywhere() -> None:
    runs = [peak(5_000 + n, features(sweep="s", nap=n, width=64)) for n in range(2)]
    comparison = RunComparison(runs)
    assert comparison.irrelevant == {"nap"} and not comparison.relevant
    later = comparison.similar_to(features(nap=9, width=64))
    assert sizes(later) == [5_000, 5_001] and later.widening == 1.0 and later.difference == ""
    assert sizes(comparison.similar_to(features(nap=9, width=65))) == [], "never varied: it may matter"
    assert sizes(comparison.similar_to(features(width=64))) == [5_000, 5_001], "left out is a value, too"


def test_of_several_explanations_the_one_with_the_fewest_values_counts() -> None:
    """A setting that is another one in each run explains everything."""
    runs = [peak(5_000 * width, features(nap=n, width=width)) for n, width in enumerate((1, 1, 2, 2))]
    comparison = RunComparison(runs)
    assert comparison.relevant == {"width"} and comparison.irrelevant == {"nap"}
    assert sizes(comparison.similar_to(features(nap=9, width=2))) == [10_000, 10_000]


def test_two_settings_that_varied_together_both_count() -> None:
    runs = [peak(5_000 * n, features(sweep="s", nap=n, width=n)) for n in (1, 2)]
    comparison = RunComparison(runs)
    assert comparison.relevant == {"nap", "width"} and not comparison.irrelevant
    assert sizes(comparison.similar_to(features(sweep="s", nap=1, width=2))) == []


def test_another_batch_is_no_evidence_about_a_setting() -> None:
    runs = [peak(5_000, features(nap=1)), peak(5_000, features(nap=2), scale=16.0)]
    assert not RunComparison(runs).irrelevant
    assert RunComparison([*runs, peak(5_050, features(nap=1), scale=16.0)]).irrelevant == {"nap"}


def test_what_nothing_explains_proves_nothing() -> None:
    runs = [peak(mb, features(nap=nap)) for mb, nap in ((5_000, 1), (9_000, 1), (5_000, 2), (9_000, 2))]
    assert not RunComparison(runs).irrelevant


def test_an_edit_of_the_code_widens_the_margin_and_what_is_measured_with_it_counts_alone() -> None:
    old = peak(5_000, features(width=64))
    edited = RunComparison([old]).similar_to(features(code="c2", width=64))
    assert sizes(edited) == [5_000] and edited.widening > 1 and "code" in edited.difference
    new = peak(5_100, features(code="c2", width=64))
    again = RunComparison([old, new]).similar_to(features(code="c2", width=64))
    assert sizes(again) == [5_100] and again.widening == 1.0 and again.difference == ""


def test_after_an_edit_that_changed_the_memory_the_newest_code_counts_with_more_margin() -> None:
    runs = [peak(5_000, features(width=64)), peak(8_000, features(code="c2", width=64))]
    comparison = RunComparison(runs)
    found = comparison.similar_to(features(code="c3", width=64))
    assert (
        sizes(found) == [8_000]
        and found.widening > RunComparison(runs[:1]).similar_to(features(code="c3", width=64)).widening
    )
    assert sizes(comparison.similar_to(features(code="c1", width=64))) == [5_000]


@pytest.mark.parametrize("count", [0, 1])
def test_few_runs_are_no_error(count: int) -> None:
    comparison = RunComparison([peak(0.0, features(a=1))] * count)
    assert len(comparison.similar_to(features(a=1)).peaks) == count
    assert comparison.similar_to(features(b=1)) == SimilarRuns()
