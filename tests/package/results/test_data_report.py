from __future__ import annotations

from pathlib import Path

import msgspec

from roost.package.results import check_findings
from roost.package.results.check_findings import FindingLine, FindingsWriter
from roost.package.results.data_report import (
    BatchPart,
    BatchSizes,
    Distribution,
    FirstBatch,
    LabelClasses,
    LengthBin,
    LoadingTimes,
    SetReport,
    SplitReport,
)


def test_it_goes_through_the_file_of_findings(tmp_path: Path) -> None:
    """Written twice: what is known before the first batch, and then all."""
    one = SetReport(
        name="train",
        class_name="Speech",
        kind="map-style",
        num_samples=2,
        classes=LabelClasses(number=1),
        lengths=Distribution(least=1, median=1, mean=1.5, most=2, num_zero=0, bins=[LengthBin(1, 2, 2)]),
    )
    split = SplitReport(name="train", sets=[one], plan="shuffled", num_batches=1, num_steps=1)
    whole = msgspec.structs.replace(
        split,
        sizes=BatchSizes(num_batches=1, least=2, median=2, most=2, padding=None),
        batch=FirstBatch(num_samples=2, num_bytes=8, parts=[BatchPart("", "float32", [2])]),
        times=LoadingTimes(num_batches=1, num_empty=0, first=0.1),
    )
    writer = FindingsWriter(tmp_path)
    for known in (split, whole):
        writer.write(FindingLine(measured={known.name: msgspec.to_builtins(known)}))
        (found,) = check_findings.read(tmp_path).measured.values()
        assert msgspec.convert(found, SplitReport) == known
