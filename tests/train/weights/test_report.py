from __future__ import annotations

from roost.train.weights.report import Report


def test_what_fits_wholly_has_nothing_to_say() -> None:
    whole = Report(num_tensors=1, loaded=["a"])
    assert whole.counted == "1 of 1 tensor" and whole.wrong() == [] and whole.lines() == []


def test_everything_is_counted_and_named() -> None:
    report = Report(
        num_tensors=20,
        loaded=["w"],
        missing=[f"net.{n}.w" for n in range(9)] + ["head.w"],
        unexpected=["x"],
        mismatched=[f"m{n} is 2 there, 3 here" for n in range(6)],
        left_out=["epoch"],
        kept=["bn.num_batches_tracked"],
        converted=["float16 there, float32 here (1)"],
        unused=["back."],
        notes=["something"],
    )
    assert report.counted == "1 of 20 tensors"
    assert report.lines() == [
        "10 missing (not there): net.* (9), head.w",
        "1 unexpected (not here): x",
        "6 mismatched: m0 is 2 there, 3 here; m1 is 2 there, 3 here; m2 is 2 there, 3 here; "
        "m3 is 2 there, 3 here; and 2 more",
        "1 of the mapping (no name there begins so): 'back.'",
        "1 left out: epoch",
        "1 kept as built (not there): bn.num_batches_tracked",
        "1 converted: float16 there, float32 here (1)",
        "something",
    ]
    assert len(report.wrong()) == 4
    assert not any("missing" in part for part in report.wrong(missing=False))
