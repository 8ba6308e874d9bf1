"""`roost.analyze`, in this very process."""

from __future__ import annotations

import hashlib
import json
import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import roost
from roost.analysis import analysis_folder
from roost.base import durable
from roost.base.errors import CheckpointError, ContractError, NotFound, Refused, UsageError
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.project.projects import RUNNER, project
from tests.project.trained import trained


def result(package: PackageFolder, number: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (package.path / "analysis" / str(number) / analysis_folder.RESULT).read_bytes()
    )
    return found


def test_gives_what_the_function_gave_and_stores_it(tmp_path: Path) -> None:
    package = trained(tmp_path)

    def look(self: Any) -> Any:
        self.save("note", "hello")
        return {"weight": self.model.net[0].weight.detach(), "cwd": str(Path.cwd())}

    given = roost.analyze(str(package.path), look, device="cpu")
    assert isinstance(given["weight"], torch.Tensor) and given["cwd"] == str(package.path)
    found, place = result(package), package.path / "analysis" / "1"
    assert found["value"]["weight"] == given["weight"].tolist() and found["saved"] == ["note.txt"]
    source = (place / "script.py").read_bytes()
    assert source.startswith(b"def look(self: Any)")
    assert found["script"]["sha256"] == hashlib.sha256(source).hexdigest()
    assert found["script"]["path"].startswith(__file__) and found["script"]["path"].endswith("look")
    analysis = analysis_folder.read(place)
    assert analysis.state == "succeeded" and analysis.record is not None
    assert analysis.record["exit_code"] is None and analysis.record["seconds"] > 0


def test_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = trained(tmp_path)
    monkeypatch.chdir(tmp_path)
    path, modules, threads = list(sys.path), set(sys.modules), torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with pytest.raises(ZeroDivisionError):
        roost.analyze(package.path, lambda self: 1 / 0, device="cpu")
    roost.analyze(package.path, lambda self: torch.rand(3), device="cpu")
    assert torch.equal(torch.rand(1), expected)
    assert (Path.cwd(), sys.path, torch.get_num_threads()) == (tmp_path, path, threads)
    assert not {name for name in sys.modules.keys() - modules if name.startswith(("Model", "Dataset"))}
    assert not list(package.path.rglob("__pycache__"))
    assert [one.state for one in analysis_folder.read_all(package.path / "analysis")] == [
        "failed",
        "succeeded",
    ]


def test_two_packages_with_modules_of_the_same_names(tmp_path: Path) -> None:
    answers = [1, 2]
    made = [
        trained(tmp_path / str(answer), runner=RUNNER + f"\n    answer = {answer}\n") for answer in answers
    ]

    def look(self: Any) -> int:
        from Model.Runner import Runner  # type: ignore[import-not-found]  # the package's

        assert type(self.runner) is Runner
        return int(Runner.answer)

    assert [roost.analyze(one.path, look, device="cpu") for one in made] == answers


def test_a_function_without_a_source(tmp_path: Path) -> None:
    package = trained(tmp_path)
    one_of_c = operator.attrgetter("checkpoint.id")
    assert roost.analyze(package.path, one_of_c, device="cpu") == 2
    assert result(package)["script"] == {"path": "operator:attrgetter", "sha256": None}
    assert not (package.path / "analysis" / "1" / analysis_folder.SCRIPT).exists()


def test_a_checkpoint_none_and_another_place(tmp_path: Path) -> None:
    package = trained(tmp_path)
    out = tmp_path / "mine" / "looks"
    given = roost.analyze(package.path, lambda self: self.checkpoint.id, checkpoint=1, device="cpu", out=out)
    assert given == 1 and (out / "1" / analysis_folder.RESULT).is_file()
    assert not (package.path / "analysis").exists()
    untrained = roost.analyze(package.path, lambda self: self.checkpoint, untrained=True, device="cpu")
    assert untrained is None and result(package)["checkpoint"] is None


def test_mistakes_come_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    package = trained(tmp_path)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (NotFound, "checkpoint 9.* 0, 1, 2", {"checkpoint": 9}),
        (NotFound, "gone", {"project": tmp_path / "gone"}),
        (NotFound, "gone", {"record_path": tmp_path / "gone"}),
        (ContractError, "3", {"function": 3}),
        (UsageError, "untrained.*99", {"untrained": True, "checkpoint": 99}),
    ]
    for kind, says, changed in wrong:
        asked = {"record_path": package.path, "function": print, **changed}
        with pytest.raises(kind, match=says) as refused:
            roost.analyze(asked.pop("record_path"), asked.pop("function"), **asked)
        messages.check(refused.value)
    torch.save({}, tmp_path / "model.pt")
    with pytest.raises(Refused, match=r"model\.pt") as refused:
        roost.analyze(tmp_path / "model.pt", print)
    messages.check(refused.value)
    data = roost.Package.new({}, root=tmp_path, name="data")
    with pytest.raises(Refused, match=r"Runner.*run\.load\(\)") as refused:
        roost.analyze(data.path, print, untrained=True)
    messages.check(refused.value)
    assert not (data.path / "analysis").exists()
    empty = project(tmp_path / "empty")
    with pytest.raises(NotFound, match="untrained=True") as refused:
        roost.analyze(empty.path, print)
    messages.check(refused.value)
    assert not (package.path / "analysis").exists()
    monkeypatch.setattr(
        durable, "fault", lambda operation, path: (_ for _ in ()).throw(PermissionError(13, "no"))
    )
    with pytest.raises(Refused, match="out=DIR") as refused:
        roost.analyze(package.path, print)
    messages.check(refused.value)


def test_all_damaged(tmp_path: Path, messages: Messages) -> None:
    package = trained(tmp_path)
    for file in package.checkpoints.glob("*/model.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError) as refused:
        roost.analyze(package.path, print, device="cpu")
    messages.check(refused.value)
    assert len(list(package.checkpoints.glob("state_*.ckpt"))) == 3, "none is set aside"
    assert analysis_folder.read(package.path / "analysis" / "1").state == "failed"


def test_interrupted(tmp_path: Path) -> None:
    package = trained(tmp_path)

    def look(self: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        roost.analyze(package.path, look, device="cpu")
    assert analysis_folder.read(package.path / "analysis" / "1").state == "stopped"


def test_to_name_it_imports_no_torch() -> None:
    program = "import sys, roost; dir(roost); assert 'analyze' in dir(roost) and 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_full_disk_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = trained(tmp_path)

    def full(operation: str, path: str) -> None:
        if ".tmp-" in path or operation == "mkdir":
            raise OSError(28, "No space left on device", path)

    def look(self: Any) -> None:
        monkeypatch.setattr(durable, "fault", full)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        roost.analyze(package.path, look, device="cpu")
    found = analysis_folder.read(package.path / "analysis" / "1")
    assert (found.state, found.error) == ("failed", "ValueError: mine"), "into the block of its start"


def test_project_and_out_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = trained(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = {"device": "cpu", "project": "~", "out": "~/looks"}
    roost.analyze(package.path, lambda self: 1, **asked)  # type: ignore[arg-type]
    assert analysis_folder.read(tmp_path / "looks" / "1").request["project"] == str(tmp_path.resolve())
