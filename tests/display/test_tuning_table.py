from __future__ import annotations

from roost.display.tuning_table import tuning_lines
from roost.package.results.tuning_report import TuningReport
from tests.messages import Messages
from tests.operations.tuning.test_tuning_file import report


def test_the_table(messages: Messages) -> None:
    lines = tuning_lines(report())
    assert lines[0].split() == ["setting", "value", "samples/s", "ratio", "spread"]
    assert lines[1].split() == ["data.num_workers", "1", "100", "1.00", "0%", "now"]
    assert lines[2].split() == ["data.num_workers", "4", "390", "3.90", "0%", "*"]
    assert lines[3].endswith("now *")
    messages.check("\n".join(lines))


def test_nothing_measured() -> None:
    assert tuning_lines(TuningReport()) == []
