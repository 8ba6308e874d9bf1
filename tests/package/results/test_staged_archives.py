"""References to staged archives, and the digests that a package records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, Refused
from roost.config import interpolation
from roost.config.sections.staging import StagedArchiveSettings
from roost.package.project_preflight import check_settings
from roost.package.results import staged_archives
from roost.package.results.staged_archives import StagedRecord
from roost.package.resume import resume_gate
from tests.messages import Messages
from tests.operations.packages import VALUES, package

TWO = [{"archive": "/drive/images.zip"}, {"archive": "https://host/b.tar.gz?key=1", "name": "labels"}]


def settings(stage: Any, **values: Any) -> Any:
    given = {**VALUES, "data": {"stage": stage}, **values}
    return check_settings(given, project=Path("/project"), package="${package}", where=lambda key: None)


def test_names_and_references() -> None:
    found = settings("/drive/data.tar.gz", root="${staged}/train", deeper={"x": ["${staged.data}"]})
    [one] = staged_archives.named_archives(found.data.stage)
    assert (one.name, one.settings) == ("data", StagedArchiveSettings(archive="/drive/data.tar.gz"))
    found = settings(TWO, root="${staged.images}", labels="${staged.labels}")
    assert [one.name for one in staged_archives.named_archives(found.data.stage)] == ["images", "labels"]
    settings(None, staged={"mine": 1}, root="${staged.mine}")  # a setting of the user's own
    settings(None, root="$${staged}")


def test_a_text_may_have_the_checksum() -> None:
    digest = "0aF" + "1" * 61
    for archive in ("../data.zip", "https://host/data.zip", "s3://bucket/data.zip"):
        staged_archives.refuse_credentials(f"{archive}#sha256={digest}", "data.stage", lambda key: None)
        (one,) = staged_archives.named_archives(f"{archive}#sha256={digest}")
        assert (one.name, one.settings.archive, one.settings.sha256) == ("data", archive, digest)
    for wrong in ("", "12", digest + "0", "g" * 64):
        with pytest.raises(ConfigError) as caught:
            staged_archives.named_archives([f"data.zip#sha256={wrong}"], key="--stage")
        assert caught.value.setting == "--stage"


def test_a_reference_is_resolved_at_run_time() -> None:
    values = {"root": "${staged}/train", "path": "${root}/x", "literal": "$${staged}"}
    resolved = interpolation.resolve(values, {})
    assert resolved["path"] == "${staged}/train/x"
    found = interpolation.fill_late(resolved, {"staged": "/scratch"})
    assert found == {"root": "/scratch/train", "path": "/scratch/train/x", "literal": "${staged}"}


@pytest.mark.parametrize(
    ("stage", "root"),
    [
        (None, "${staged}"),
        (TWO, "${staged}"),
        (TWO, "${staged.image}"),
        ([TWO[0], TWO[0]], ""),
        (["/drive/a b.zip", "/drive/c.zip"], ""),
        ("https://me:secret@host/data.zip", ""),
        ("https://host/data.zip?X-Amz-Signature=12345", ""),
        ({"archive": "a.zip", "sha256": "12"}, ""),
        ({"archive": "a.zip", "sha": "12"}, ""),
        ("", ""),
    ],
    ids=["none", "several", "misspelled", "twice", "no-name", "password", "signed", "digest", "key", "empty"],
)
def test_mistakes(stage: Any, root: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as error:
        settings(stage, root=root)
    messages.check(error.value)


def record(sha256: str) -> dict[str, StagedRecord]:
    return {"data": StagedRecord(archive="/drive/data.zip", sha256=sha256, num_files=1, num_bytes=2)}


def test_other_data_need_force(tmp_path: Path) -> None:
    run = package(tmp_path / "runs", values={**VALUES, "data": {"stage": {"archive": "data.zip"}}})
    assert staged_archives.read(run.path) == {}
    staged_archives.write(run.path, record("a" * 64))
    assert staged_archives.read(run.path) == record("a" * 64)
    moved = resume_gate.check(run, ["data.stage.archive=/other/data.zip", "+data.stage.to=/scratch"])
    assert not moved.needs_force, "the digest is compared when it is read"
    same = resume_gate.check(run, [f"+data.stage.sha256={'A' * 64}"])
    assert not same.needs_force
    other = resume_gate.check(run, [f"+data.stage.sha256={'b' * 64}"])
    with pytest.raises(Refused, match=r"data\.stage\.sha256: a{64} -> b{64}"):
        other.require(force=False)
    assert any("data.stage.sha256" in reason for reason in other.reasons())
