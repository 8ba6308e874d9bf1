"""The report of an evaluation, written again: as it is now, or by another version of roost."""

from __future__ import annotations

from pathlib import Path

from roost.evaluation.reports import report_files
from roost.operations.evaluating.named_evaluations import find_evaluation


def write_report(word: str | Path) -> list[Path]:
    """Writes ``report.md`` and ``report.html`` of an evaluation as it is now, and returns their paths.

    Args:
        word: The evaluation, or a package with one, see `find_evaluation`.

    Raises:
        NotFound: There is no such evaluation.
        UsageError: The package has several.
        Refused: The folder cannot be written.
        ConfigError: Rows are Parquet, and pyarrow is not installed.
        RoostError: Rows cannot be read.
    """
    return report_files.write_reports(find_evaluation(word))
