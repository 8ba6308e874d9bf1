"""`roost import` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.programs import roost


def test_a_table_becomes_a_package_once(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,remark\n1,0.5,a\n2,0.25,b\n")
    first = roost("import", "metrics.csv", "--name", "base", cwd=tmp_path)
    assert first.returncode == 0 and first.stdout == "runs/base\n", first.stderr
    assert "not imported: texts in remark" in first.stderr
    again = roost("import", "metrics.csv", cwd=tmp_path)
    assert again.returncode == 0 and again.stdout == "runs/base\n" and "imported before" in again.stderr
    (found,) = json.loads(roost("import", "metrics.csv", "--json", "-o", "others", cwd=tmp_path).stdout)
    assert found["rows"] == 2 and found["is_new"] and found["system"] == "csv"
    (row,) = json.loads(roost("ls", "runs", "--json", cwd=tmp_path).stdout)
    assert (row["state"], row["step"], row["last"]) == ("succeeded", 2, 0.25)
    wrong = roost("import", "nothing.csv", cwd=tmp_path)
    assert wrong.returncode == 3 and wrong.stdout == ""
