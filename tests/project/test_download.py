"""Files that are fetched once, from the first mirror that gives the right bytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import RoostError
from roost.project.download import download
from tests.messages import Messages
from tests.mirror import Mirror

DATA = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
OWN = b"somebody's own"
NOBODY = "http://127.0.0.1:9/"
"""The discard port, where nothing listens."""


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Mirror({"a.gz": DATA}) as made:
        yield made


def only(target: Path) -> bool:
    """Whether the file is right and nothing else is in its folder."""
    return target.read_bytes() == DATA and list(target.parent.iterdir()) == [target]


def test_a_file_is_fetched_once(mirror: Mirror, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "not" / "there yet" / "a.gz"
    assert download(mirror.url("good") + "a.gz", target, sha256=SHA256.upper()) == target
    assert only(target)
    said = capfd.readouterr()
    assert said.out == "" and "250.0 of 250.0 kB, 100%" in said.err
    assert said.err.count("kB/s") == 1 and "\r" not in said.err, "a line a second at most, and the last one"
    assert download([mirror.url("good") + "a.gz"], str(target), sha256=SHA256) == target
    assert mirror.asked == ["/good/a.gz"] and capfd.readouterr().err == ""


@pytest.mark.parametrize("how", ["moved", "unsized"])
def test_what_servers_do(mirror: Mirror, tmp_path: Path, how: str) -> None:
    assert only(download(mirror.url(how) + "a.gz", tmp_path / "a.gz", sha256=SHA256))


def test_a_file_url(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    assert only(download((tmp_path / "source").as_uri(), tmp_path / "to" / "a.gz", sha256=SHA256))


def test_a_folder_that_may_only_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(DATA)
    tmp_path.chmod(0o500)
    before = tmp_path.stat().st_mtime_ns
    assert download(NOBODY, tmp_path / "a.gz", sha256=SHA256) == tmp_path / "a.gz"
    assert tmp_path.stat().st_mtime_ns == before, "nothing was written, no lock either"


def test_each_failing_mirror_is_told_and_the_next_one_tried(
    mirror: Mirror, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = [mirror.url(how) + "a.gz" for how in ("gone", "other", "cut", "hold", "drip", "slow")]
    bad += [NOBODY, "http://127.0.0.1:none/", (tmp_path / "missing").as_uri()]
    target = tmp_path / "data" / "a.gz"
    download([*bad, mirror.url("good") + "a.gz"], target, sha256=SHA256, timeout_seconds=0.3)
    assert only(target)
    said = capfd.readouterr().err
    other = hashlib.sha256(DATA[::-1]).hexdigest()
    assert "404 Not Found" in said and f"256000 bytes with sha256 {other}" in said
    assert "128000 of 256000 bytes" in said and "0.3 s" in said
    assert "stalled: " in said and "Connection refused" in said and "port" in said

    target.unlink()
    with pytest.raises(RoostError) as error:
        download(bad, target, sha256=SHA256, timeout_seconds=0.3, advice="Use the small one")
    text = str(error.value)
    causes, what_to_do = text.splitlines()
    assert causes.count("; ") == len(bad) - 1 and "; 127.0.0.1:9: Connection refused; " in causes
    assert causes.endswith(f"{bad[-1]}: {os.strerror(errno.ENOENT)}")
    assert what_to_do.endswith(": Use the small one")
    assert list(target.parent.iterdir()) == []


def test_without_advice_the_error_says_where_to_put_the_file(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(RoostError, match=rf"{tmp_path}/a\.gz .*sha256 {SHA256}") as refused:
        download(NOBODY, tmp_path / "a.gz", sha256=SHA256)
    messages.check(refused.value)


def test_what_a_server_writes_is_harmless(
    mirror: Mirror, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RoostError, match=r"404 \\x1b\[2JNot\\x07 Found x+ …\n"):
        download(mirror.url("rude") + "a.gz", tmp_path / "a.gz", sha256=SHA256)
    assert "\x1b" not in capfd.readouterr().err


def test_a_folder_in_its_place(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(RoostError, match=str(tmp_path)) as refused:
        download(NOBODY, tmp_path, sha256=SHA256)
    messages.check(refused.value)


def test_megabytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = bytes(3 * 2**19)
    (tmp_path / "source").write_bytes(data)
    url, sha256 = (tmp_path / "source").as_uri(), hashlib.sha256(data).hexdigest()
    download(url, tmp_path / "a.gz", sha256=sha256)
    assert "a.gz: 1.5 of 1.5 MB, 100%, " in capfd.readouterr().err


def test_another_file_in_its_place_is_kept_beside_it(
    mirror: Mirror, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "a.gz"
    target.write_bytes(OWN)
    with pytest.raises(RoostError):
        download(NOBODY, target, sha256=SHA256)
    assert target.read_bytes() == OWN
    capfd.readouterr()
    download(mirror.url("good") + "a.gz", target, sha256=SHA256)
    said, aside = capfd.readouterr().err, tmp_path / f"a.gz.{hashlib.sha256(OWN).hexdigest()[:12]}"
    assert said.count(aside.name) == 1
    assert target.read_bytes() == DATA and aside.read_bytes() == OWN


@pytest.mark.parametrize(
    ("urls", "sha256", "says"),
    [
        (
            "ftp://127.0.0.1/a.gz",
            SHA256,
            "ftp.*http://, https://, file://",
        ),
        ("data:,hello", SHA256, "data:,hello"),
        ("/srv/a.gz", SHA256, "/srv/a.gz"),
        ([], SHA256, "mirror"),
        (NOBODY, SHA256[:-1], "64"),
        (NOBODY, "", "64"),
    ],
)
def test_what_is_no_address_or_checksum(
    tmp_path: Path, urls: str | list[str], sha256: str, says: str, messages: Messages
) -> None:
    with pytest.raises(RoostError, match=says) as refused:
        download(urls, tmp_path / "new" / "a.gz", sha256=sha256)
    messages.check(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_redirection_out_of_http_is_not_followed(mirror: Mirror, tmp_path: Path) -> None:
    """A mirror must not make us read our own files, or speak ftp."""
    with pytest.raises(RoostError, match="redirects to file://"):
        download(mirror.url("away") + "a.gz", tmp_path / "a.gz", sha256=SHA256)


def test_a_full_disk_is_no_fault_of_the_mirror(mirror: Mirror, tmp_path: Path) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "write" and "a.gz.tmp-" in path:
            raise OSError(28, "No space left on device")

    durable.fault = full
    try:
        with pytest.raises(OSError, match="No space left"):
            download([mirror.url("good") + "a.gz"] * 2, tmp_path / "a.gz", sha256=SHA256)
    finally:
        durable.fault = None
    assert mirror.asked == ["/good/a.gz"] and list(tmp_path.iterdir()) == []


# --- other processes ---------------------------------------------------------------------------------------


def other_process(url: str, target: Path, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    program = "import sys, roost; roost.download(sys.argv[1], sys.argv[2], sha256=sys.argv[3])"
    return subprocess.Popen(
        [sys.executable, "-c", program, url, str(target), SHA256], stderr=stderr, text=True
    )


def test_of_two_that_begin_at_once_one_fetches(mirror: Mirror, tmp_path: Path) -> None:
    target = tmp_path / "a.gz"
    first = other_process(mirror.url("hold") + "a.gz", target)
    assert mirror.half_sent.wait(100)
    assert not target.exists()
    second = other_process(mirror.url("good") + "a.gz", target)
    assert second.stderr is not None
    assert "waiting" in second.stderr.readline()
    mirror.go_on.set()
    assert first.communicate(timeout=100) and second.communicate(timeout=100)
    assert (first.returncode, second.returncode) == (0, 0)
    assert mirror.asked == ["/hold/a.gz"] and only(target)


def test_what_a_killed_download_leaves_harms_nothing(mirror: Mirror, tmp_path: Path) -> None:
    target = tmp_path / "a.gz"
    (tmp_path / ".b.gz.tmp-0123456789ab").write_bytes(b"another download's")
    killed = other_process(mirror.url("hold") + "a.gz", target)
    assert mirror.half_sent.wait(100)
    waiting = other_process(mirror.url("good") + "a.gz", target)
    assert waiting.stderr is not None and "waiting" in waiting.stderr.readline()
    killed.kill()
    killed.communicate(timeout=100)
    waiting.communicate(timeout=100)
    assert waiting.returncode == 0 and target.read_bytes() == DATA
    assert {path.name for path in tmp_path.iterdir()} == {"a.gz", ".b.gz.tmp-0123456789ab"}


def test_a_bar_on_a_terminal(mirror: Mirror, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = other_process(mirror.url("good") + "a.gz", tmp_path / "a.gz", stderr=theirs)
    os.close(theirs)
    shown = ""
    with contextlib.suppress(OSError):  # EIO: the process has ended
        while piece := os.read(ours, 4096).decode():
            shown += piece
    os.close(ours)
    assert process.wait(100) == 0 and only(tmp_path / "a.gz")
    assert "\ra.gz [########################] 250.0 of 250.0 kB, 100%" in shown
