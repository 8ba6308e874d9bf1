"""The files of a session have the fields, their order and the layout that earlier versions wrote."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from roost.package import sessions
from roost.package.sessions import UnsupervisedRecord
from roost.supervisor.limits import SessionLimits
from tests.supervisor.real_sessions import Session

REQUEST = {"kind": "train", "command": ["roost"], "overrides": ["a=1"], "checkpoint": 4, "newer": {"a": [1]}}
TWO_RANKS = """
number, rank = int(sys.argv[1]), os.environ["RANK"]
if number == 1 and rank == "1": os._exit(3)
if number == 1: forever()
memory = {"peak_mb": 5.0, "allocated_mb": 4.0, "driver_mb": 1.0, "others_mb": 0, "asked_mb": None, "ooms": 0}
os.write(int(os.environ["ROOST_REPORT_FD"]), json.dumps({"memory": memory}).encode() + b"\\n")
print("x" * 9999)
end("succeeded", 0)
"""
WRITTEN = Path(__file__).with_name("session_files.txt")
"""What commit 4f37895 wrote, with the type of each value in place of the value."""


VALUE = r'(?<=": )("[^"]*"|true|false|null|-?[\d.e+-]+)'


def shape(file: Path) -> str:
    """The text of a file with the type of each value in place of the value."""
    text = re.sub(r'("cgroup": )null', r'\1""', file.read_text())  # not every machine has cgroups
    text = re.sub(
        r'(": )("[^"]*"|true|false|null|-?[\d.e+-]+)', lambda value: value[1] + kind(value[2]), text
    )
    return f"{file.name}\n{text}\n"


def kind(value: str) -> str:
    return type(json.loads(value)).__name__


@pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")
def test_they_are_as_earlier_versions_wrote_them(session: Session) -> None:
    folder = session.file.parent
    number = sessions.write_request(folder, REQUEST)
    spec = session.spec(TWO_RANKS)
    limits = SessionLimits(output_bytes=2000, peer_seconds=0.1)
    spec = spec._replace(argv=[*spec.argv, str(number)], restart=1, ranks=({}, {}), limits=limits)
    assert session.start_spec(spec).wait(100) == 0
    own = UnsupervisedRecord(folder / "3.json", sessions.write_request(folder, {"kind": "python"}))
    own.end("succeeded", "finished", error=ValueError("x"))
    names = ["1.request.json", "1.json", "2.request.json", "2.json", "3.request.json", "3.json"]
    assert "".join(shape(folder / name) for name in names) == WRITTEN.read_text()
