"""The loop of the upload process of a session."""

from __future__ import annotations

import shutil
from pathlib import Path

from roost.config.sections.remote import RemoteSettings
from roost.package.remote import remote_status
from roost.worker.remote_upload import UploadLoop
from tests.package.remote.packages import make, save, uploader


def test_the_end_of_a_session_waits_for_no_upload_that_was_given_up(tmp_path: Path) -> None:
    other, package = make(tmp_path / "other"), make(tmp_path / "runs")
    save(other, 0)
    uploader(other, tmp_path / "store").upload(is_live=False)  # a copy of another run of the same name
    loop = UploadLoop(package, RemoteSettings(url=str(tmp_path / "store"), every="0.1s"))
    loop.start()
    assert loop.is_done.wait(100)
    loop.end_session()
    assert loop.is_done.is_set()
    loop.close()
    status = remote_status.read(package.path)
    assert status is not None
    assert status.state == "refused"


def test_the_end_of_a_session_waits_for_no_package_that_was_removed_before_the_first_upload(
    tmp_path: Path,
) -> None:
    package = make(tmp_path / "runs")
    loop = UploadLoop(package, RemoteSettings(url=str(tmp_path / "store"), every="0.1s"))
    shutil.rmtree(package.path)
    loop.start()
    loop.end_session()
    assert loop.is_done.wait(60)
    loop.close()
    assert not package.path.exists()
    assert not (tmp_path / "store").exists()
