from __future__ import annotations

from roost.train.weights.load_report import LoadReport
from tests.messages import Messages


def test_what_fits_wholly_has_nothing_to_say() -> None:
    whole = LoadReport(num_tensors=1, loaded=["a"])
    assert "1 of 1 " in whole.summary and whole.problems() == [] and whole.lines() == []


def test_everything_is_counted_and_named(messages: Messages) -> None:
    report = LoadReport(
        num_tensors=20,
        loaded=["w"],
        missing=[f"net.{n}.w" for n in range(9)] + ["head.w"],
        unexpected=["x"],
        mismatched=[f"m{n} is 2 in the file, 3 here" for n in range(6)],
        left_out=["epoch"],
        kept=["bn.num_batches_tracked"],
        converted=["float16 in the file, float32 here (1)"],
        unused=["back."],
        notes=["something"],
    )
    assert "1 of 20 " in report.summary
    facts = [
        ("10 missing", "net.* (9), head.w"),
        ("1 unexpected", ": x"),
        ("6 mismatched", "m0 is 2 in the file, 3 here", "m3 is 2 in the file, 3 here", "2 more"),
        ("1 ", "'back.'"),
        ("1 ", "epoch"),
        ("1 ", "bn.num_batches_tracked"),
        ("1 converted", "float16 in the file, float32 here (1)"),
        ("something",),
    ]
    for line, named in zip(report.lines(), facts, strict=True):
        assert all(fact in line for fact in named), line
    messages.check("\n".join([report.summary, *report.lines()]))
    assert len(report.problems()) == 4
    assert not any("missing" in part for part in report.problems(missing=False))
