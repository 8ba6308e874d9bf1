"""The comparison as a whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import NotFound, UsageError
from roost.operations.comparing import metric_comparison
from roost.operations.comparing.compare import compare
from roost.package.package import PackageFolder
from tests.operations.comparing.runs import ENVIRONMENT, STACK, edit_project, make, optimizer
from tests.operations.comparing.test_run_relation import make_fork
from tests.operations.packages import ROWS


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_two_runs(tmp_path: Path) -> None:
    first = make(tmp_path / "runs", "a", environment=ENVIRONMENT)
    edit_project(tmp_path / "runs", "x.py", b"a\n")
    other = {**ENVIRONMENT, "stack": {**STACK, "torch": "2.12.0"}}
    rows = [ROWS[0], {**ROWS[1], "train/loss": 3.0}, ROWS[2]]
    second = make(tmp_path / "runs", "b", environment=other, rows=rows, optimizers=optimizer(0.5))
    found = compare([first.path, str(second.path)], diff=[])
    assert [one.summary.name for one in found.runs] == ["a", "b"] and found.step == 30
    assert [one.name for one in found.settings] == ["optimizers.main.lr"] and found.num_equal_settings > 3
    assert found.metrics[0].name == "valid/loss"
    assert found.curves is not None and (found.curves.equal_until, found.curves.step) == (10, 20)
    assert [(one.path, one.diff) for one in found.code.files] == [("x.py", ["@@ -0,0 +1 @@", "+a"])]
    assert [one.name for one in found.environment] == ["torch"]
    body = msgspec.json.decode(msgspec.json.encode(found))
    assert body["curves"]["metrics"][0] == {"name": "train/loss", "values": [1.0, 3.0]}
    assert msgspec.convert(body, type(found)) == found


def test_all_of_it(tmp_path: Path) -> None:
    runs = [make(tmp_path / "runs", name, environment=ENVIRONMENT).path for name in "ab"]
    short, long = compare(runs), compare(runs, is_all=True)
    assert short.settings == [] and short.environment == [] and short.relation.same_settings
    assert len(long.settings) == long.num_equal_settings == short.num_equal_settings
    assert len(long.environment) > 10


def test_a_fork_alone_is_compared_with_its_parent(tmp_path: Path) -> None:
    first = make(tmp_path / "runs", "first")
    fork = make_fork(make(tmp_path / "runs", "fork"), first, 20)
    assert [one.summary.name for one in compare([fork.path]).runs] == ["first", "fork"]


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a").path
    (tmp_path / "link").symlink_to(made)
    for packages in ([made], [made, made], [made, tmp_path / "link"]):
        with pytest.raises(UsageError):
            compare(packages)
    other = make(tmp_path / "runs", "c").path
    names = [one.summary.name for one in compare([made, other, tmp_path / "link"]).runs]
    assert names == ["a", "c"]
    with pytest.raises(NotFound):
        compare([])
    with pytest.raises(NotFound):
        compare([tmp_path / "x", tmp_path / "y"])
    with pytest.raises(NotFound):
        compare([made, make(tmp_path / "runs", "b").path], metrics=["none/such"])


def test_a_package_that_is_removed_while_it_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its settings were read, and before its records."""
    runs = [make(tmp_path / "runs", name).path for name in "abc"]
    table = metric_comparison.MetricTable.add

    def remove(self: metric_comparison.MetricTable, position: int, *rest: object) -> None:
        shutil.rmtree(runs[2], ignore_errors=True)
        table(self, position, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(metric_comparison.MetricTable, "add", remove)
    found = compare(runs, diff=[])
    assert found.metrics[0].last == [0.75, 0.75, None] and len(found.runs) == 3
    assert compare(runs).runs[2].summary.state == "damaged"


def test_it_never_imports_torch_and_runs_no_code_of_a_package(tmp_path: Path) -> None:
    edit_project(tmp_path / "runs", "Model/Runner.py", b"open('/dev/full', 'w').write('x' * 9999)\n")
    runs = [make(tmp_path / "runs", name) for name in "ab"]
    program = (
        "import sys; from roost.operations.comparing.compare import compare; compare(sys.argv[1:]); "
        "assert 'torch' not in sys.modules and not any('Runner' in one for one in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, *(run.path for run in runs)], check=True, timeout=100)


def test_a_real_run_and_its_copy(finished: PackageFolder) -> None:
    """All that a worker has recorded is found, and equal."""
    copy = finished.path.with_name("copy")
    shutil.copytree(finished.path, copy, symlinks=True)
    found = compare([finished.path, copy], is_all=True)
    assert found.relation.same_settings and found.code.is_same and found.settings
    assert [one.unreadable for one in found.runs] == [[], []]
    orders = {one.data_order for one in found.runs}
    assert len(orders) == 1 and None not in orders
    environment = {one.name: one.values for one in found.environment}
    assert environment["torch"][0] == environment["torch"][1] != ""
    assert found.curves is not None and found.curves.step is None and found.curves.compared > 3
    assert not any(len(set(one.values)) > 1 for one in found.environment)
