"""The files of a report, ``report.md`` and ``report.html`` in the folder of an evaluation."""

from __future__ import annotations

from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused
from roost.evaluation.reports import report_content, report_html, report_markdown
from roost.package.results.evaluations import evaluation_folder
from roost.package.results.evaluations.evaluation_folder import EvaluationFolder

MARKDOWN, HTML = "report.md", evaluation_folder.REPORT


def write_reports(folder: Path) -> list[Path]:
    """Writes the reports of an evaluation as it is now, and returns their paths.

    Args:
        folder: The folder of the evaluation.

    Raises:
        NotFound: It has no grid.
        Refused: The folder cannot be written.
        ConfigError: Rows are Parquet, and pyarrow is not installed.
        RoostError: Rows cannot be read.
    """
    content = report_content.read_content(EvaluationFolder(folder))
    texts = {MARKDOWN: report_markdown.render(content), HTML: "".join(report_html.render(content))}
    try:
        for name, text in texts.items():
            durable.write(folder / name, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise Refused(
            f"the report cannot be written: {error.strerror or error}",
            where=folder,
            fix="make the folder writable, or free space; the results of the evaluation are kept",
        ) from error
    return [folder / name for name in texts]
