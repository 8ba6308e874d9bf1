"""Evaluations of a package, made by the functions that a real one uses; no model is needed for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roost import Media
from roost.evaluation.cell import write_cell
from roost.evaluation.file_writer import FileWriter
from roost.evaluation.grid import write_grid
from roost.evaluation.summaries import summary
from roost.evaluation.summaries.summary import Case
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_folder import CellFile, CellIdentity, Grid, GridCell

VARIANTS, CHECKPOINTS, SETS = ["greedy", "beam"], ["best", "last"], ["test%clean"]
CASES = [Case("wer", "max", 3)]
NO_DIGESTS = CellIdentity(weights="", variant="", code="", data="")


def write_cell_file(
    folder: Path, *, form: str = "parquet", variant: str = "v", checkpoint: str = "c", dataset: str = "test"
) -> None:
    """Writes the cell.json of a cell without digests and plan."""
    made = CellFile(
        identity=NO_DIGESTS,
        variant=variant,
        arguments={},
        checkpoint=checkpoint,
        checkpoint_ids=[],
        dataset=dataset,
        batches=[],
        samples=0,
        groups=[],
        format="parquet" if form == "parquet" else "jsonl",
        seed=0,
    )
    write_cell(folder, made)


def write_cells(root: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Writes the cells.json of an evaluation with these fields of its cells."""
    fields = {"variant": "v", "checkpoint": "c", "dataset": "d"}
    made = [
        GridCell(**{"identity": NO_DIGESTS, "samples": 0, "batches": 0, **fields, **one}) for one in entries
    ]
    write_grid(root, Grid(checkpoints=[], variants={}, cells=made, threads=1, device="cpu"))


def make_cell(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    *,
    cases: Sequence[Case] | None = None,
    form: str = "parquet",
    batches: Any = None,
) -> Path:
    """Writes the files of a finished cell with these rows."""
    folder.mkdir(parents=True)
    write_cell_file(folder, form=form)
    evaluation_rows.write_part(folder, [0], rows, session=1, rank=0, batch_values=batches)
    evaluation_rows.merge(folder, [row["id"] for row in rows])
    read = evaluation_rows.read_rows(folder, summary.needed_columns(folder))
    own = evaluation_rows.read_batch_values(folder)
    summary.write(folder, summary.summarize(read, identity="test", cases=cases, batch_values=own))
    return folder


def speech_rows(folder: Path, *, count: int = 24, shift: float = 0.0, seed: int = 0) -> list[dict[str, Any]]:
    """Returns rows of a speech recognizer, with a picture and a sound for each."""
    draws = np.random.default_rng(seed)
    times = np.arange(1600) / 8000
    rows: list[dict[str, Any]] = []
    folder.mkdir(parents=True)
    with FileWriter(folder) as files:
        for place in range(count):
            id_ = f"spk{place % 3}/utt-{place:03d}"
            tone = np.sin(2 * np.pi * (220 + 20 * place) * times) * 0.3
            picture = np.abs(np.sin(np.outer(np.arange(24), np.arange(48)) * 0.01 * (place + 1)))
            rows.append(
                {
                    "id": id_,
                    "wer": float(np.round(draws.random() * 0.5 + shift, 3)),
                    "cer": float(draws.random() * 0.2),
                    "text": f"<b>hypothesis</b> & | number {place}",
                    "reference": f"reference number {place}",
                    "tokens": list(range(place % 4)),
                    "sound": files.add(id_, "sound", Media("audio", tone, rate=8000)),
                    "attention": files.add(id_, "attention", Media("image", picture)),
                    "group/speaker": f"spk{place % 3}" if place % 8 else None,
                    "group/gender": "fm"[place % 2],
                }
            )
    rows[1]["cer"] = float("nan")
    rows[5] = {"id": rows[5]["id"], "group/speaker": "spk2", "skipped/error": "RuntimeError: <boom>"}
    return rows


def make_evaluation(package: Path, name: str = "beams", *, form: str = "parquet", worse: float = 0.0) -> Path:
    """Makes an evaluation with four finished cells and one that is not finished.

    Args:
        package: The folder of a package, or of none.
        name: The name of the evaluation.
        form: The format of the rows.
        worse: Added to each word error rate.
    """
    root = package / "evaluations" / name
    entries = []
    for variant in VARIANTS:
        for number, checkpoint in enumerate(CHECKPOINTS):
            folder = f"{variant}/{checkpoint}/{SETS[0]}"
            shift = 0.1 * number + (0.05 if variant == "greedy" else 0.0)
            staged = root / folder
            made = package / "staged" / name / folder
            rows = speech_rows(made, shift=shift + worse, seed=number)
            staged.parent.mkdir(parents=True, exist_ok=True)
            batches = {0: {"samples": len(rows), "loss": 0.5 + shift}}
            make_cell(staged, rows, cases=CASES, form=form, batches=batches)
            (made / "files").rename(staged / "files")
            entries.append({"folder": folder, "variant": variant, "checkpoint": checkpoint})
    entries.append({"folder": "beam/3/x", "variant": "beam", "checkpoint": "3", "state": "waiting"})
    cells = [{"dataset": "test/clean", "state": "finished", **one} for one in entries]
    write_cells(root, cells)
    (root / "request.json").write_text("{}")
    return root
