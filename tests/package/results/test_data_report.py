from __future__ import annotations

from pathlib import Path

import msgspec

from roost.package.results import check_findings
from roost.package.results.check_findings import Line, Writer
from roost.package.results.data_report import (
    Bin,
    Classes,
    FirstBatch,
    OneSet,
    Part,
    Sizes,
    Split,
    Spread,
    Times,
)


def test_it_goes_through_the_file_of_findings(tmp_path: Path) -> None:
    """Written twice: what is known before the first batch, and then all."""
    one = OneSet(
        name="train",
        class_name="Speech",
        kind="map-style",
        num_samples=2,
        classes=Classes(number=1),
        lengths=Spread(least=1, median=1, mean=1.5, most=2, num_zero=0, bins=[Bin(1, 2, 2)]),
    )
    split = Split(name="train", sets=[one], plan="shuffled", num_batches=1, num_steps=1)
    whole = msgspec.structs.replace(
        split,
        sizes=Sizes(num_batches=1, least=2, median=2, most=2, padding=None),
        batch=FirstBatch(num_samples=2, num_bytes=8, parts=[Part("", "float32", [2])]),
        times=Times(num_batches=1, num_empty=0, first=0.1),
    )
    writer = Writer(tmp_path)
    for known in (split, whole):
        writer.write(Line(measured={known.name: msgspec.to_builtins(known)}))
        (found,) = check_findings.read(tmp_path).measured.values()
        assert msgspec.convert(found, Split) == known
