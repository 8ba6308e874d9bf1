from __future__ import annotations

import json
from pathlib import Path

from tests.cli.programs import roost
from tests.lab.notices.receivers import Web
from tests.messages import Messages


def test_they_are_shown_and_tried(tmp_path: Path, messages: Messages) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = roost("notices", **home)
    assert done.returncode == 3 and "notices.yaml" in done.stderr
    messages.check(done.stderr)
    good, bad = Web(), Web(410)
    file = tmp_path / "roost" / "notices.yaml"
    file.parent.mkdir()
    urls = f"good: {{kind: slack, url: '{good.url}'}}, bad: {{kind: ntfy, url: '{bad.url}'}}"
    file.write_text(f"least_minutes: 5\nevents: [fail]\nreceivers: {{{urls}}}")
    file.chmod(0o640)
    done = roost("notices", **home)
    assert done.returncode == 5 and f"`chmod 600 {file}`" in done.stderr
    file.chmod(0o600)
    done = roost("notices", "--test", **home)
    said = [json.loads(roost("notices", *more, "--json", **home).stdout) for more in ([], ["--test"])]
    assert [body["receivers"][0]["why_not"] for body in said] == [None, ""]
    assert said[0]["file"] == str(file) and said[0]["least_minutes"] == 5 and said[0]["events"] == ["fail"]
    good.close()
    bad.close()
    assert roost("notices", "--test", "--json", **home).returncode == 1
    assert done.returncode == 1 and "s3cret" not in done.stdout + done.stderr
    last = done.stderr.splitlines()[-1]
    assert "notices.yaml: fail" in last and " 5 min" in last
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["NAME", "good", "bad"]
    assert lines[1][3] == "sent" and lines[2][3].startswith("failed: ") and " 410" in lines[2][3]
    assert len(good.asked) == len(bad.asked) == 2
