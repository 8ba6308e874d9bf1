"""The reports of an evaluation: what they show, that they need nothing else, and that no text breaks out."""

from __future__ import annotations

import base64
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from roost.base.errors import NotFound, Refused
from roost.evaluation.reports import report_content, report_html, report_media
from roost.evaluation.reports.number_text import number_text, value_text
from roost.evaluation.reports.report_files import write_reports
from roost.package.results.evaluations.evaluation_folder import EvaluationFolder
from tests.evaluation.made_evaluation import make_cell, make_evaluation, write_cells

VOID = {"meta", "img", "rect", "line"}


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_evaluation(tmp_path_factory.mktemp("made") / "run")


class Page(HTMLParser):
    """The elements of a page, whose tags must be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_needs_nothing_else_and_runs_nothing(evaluation: Path) -> None:
    write_reports(evaluation)
    text = (evaluation / "report.html").read_text()
    page = Page(text)
    assert not page.all("script") and not page.all("link") and not page.all("iframe")
    sources = [one["src"] or "" for tag in ("img", "audio") for one in page.all(tag)]
    assert len(page.all("audio")) == 24 and all(source.startswith("data:") for source in sources)
    picture = next(source for source in sources if source.startswith("data:image/png"))
    assert base64.b64decode(picture.partition(",")[2]).startswith(b"\x89PNG")
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    assert "<b>hypothesis</b>" not in text and "&lt;b&gt;hypothesis&lt;/b&gt; &amp; | number" in text
    assert "&lt;boom&gt;" in text and "Not finished: 1 cell" in text
    assert len(page.all("svg")) == 8  # cer and wer of four cells
    assert text.count('class="line median"') == 8


def test_both_reports_mark_the_best_and_the_worst(evaluation: Path) -> None:
    write_reports(evaluation)
    lines = (evaluation / "report.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith(("| best |", "| last |"))]
    assert [("best" in line[8:], "worst" in line) for line in rows if " beam " in line] == [
        (True, False),
        (False, True),
    ]
    assert re.search(r"\*\*0\.5\*\* best", rows[2])
    page = (evaluation / "report.html").read_text()
    assert '<td class="best"><span class="tag">best</span>0.5</td>' in page
    assert "### By speaker" in lines and any(line.startswith("| (none) | 3 |") for line in lines)
    assert any("\\| number" in line and "&lt;b&gt;" in line for line in lines)


def test_media_are_bounded(evaluation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = report_content.read_content(EvaluationFolder(evaluation))
    sizes = [
        (one.cell.path / file).stat().st_size
        for one in content.cells
        for listed in one.worst
        for case in listed.cases
        for file in case.files.values()
    ]
    monkeypatch.setattr(report_media, "MAX_MEDIA_BYTES", 2 * max(sizes))
    text = "".join(report_html.render(content))
    Page(text)
    assert len(text) < 2 * 2 * max(sizes) + 100_000
    assert "Links in place of the files" in text
    assert 'href="greedy/best/test%25clean/files/' in text


def test_a_file_outside_of_the_cell_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("private")
    rows = [{"id": 0, "wer": 1.0, "a": {"file": "../secret.txt"}, "b": {"file": "files/gone.png"}}]
    root = tmp_path / "evaluations" / "one"
    make_cell(root / "cell", rows)
    (root / "cell" / "link.txt").symlink_to(secret)
    write_cells(root, [{"folder": "cell"}])
    write_reports(root)
    text = (root / "report.html").read_text()
    assert "private" not in text and "is outside of the cell" in text and "gone.png is missing" in text


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_the_report_reads_only_the_cases(tmp_path: Path, form: str) -> None:
    """It takes the rows of the cases alone from a cell of many, in both formats."""
    count = 70_000
    rows = [{"id": place, "wer": float(place), "text": f"t{place}"} for place in range(count)]
    root = tmp_path / "run" / "evaluations" / "one"
    make_cell(root / "cell", rows, form=form)
    write_cells(root, [{"folder": "cell"}])
    (content,) = report_content.read_content(EvaluationFolder(root)).cells
    assert [case.outputs["text"] for case in content.worst[0].cases[:2]] == ["t69999", "t69998"]
    assert [case.outputs["text"] for case in content.best[0].cases[:2]] == ["t0", "t1"]
    write_reports(root)
    assert (root / "report.html").stat().st_size < 100_000


def test_an_unwritable_folder_is_one_clear_error(evaluation: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(evaluation, copy)
    from roost.base import durable

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and "report" in path:
            raise PermissionError(13, os.strerror(13), path)

    durable.fault = refuse
    try:
        with pytest.raises(Refused) as caught:
            write_reports(copy)
    finally:
        durable.fault = None
    assert "Permission denied" in str(caught.value) and caught.value.where == copy
    with pytest.raises(NotFound):
        write_reports(tmp_path)


def test_numbers_and_values_as_text() -> None:
    assert [number_text(one) for one in (None, 0.123456, 12, 1234567, 3.0, 1e9, float("nan"), True)] == [
        "–", "0.1235", "12", "1,234,567", "3", "1e+09", "nan", "true",
    ]  # fmt: skip
    assert value_text("x" * 700).endswith("… (700 characters)")
    assert value_text(np.arange(3)) == "[0, 1, 2]"
    assert value_text([1 / 3, {"a": [2 / 3]}]) == '[0.3333, {"a": [0.6667]}]'
