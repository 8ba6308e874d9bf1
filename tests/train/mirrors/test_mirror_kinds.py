from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import ConfigError
from roost.config.sections.mirrors import CsvSettings, MirrorSettings
from roost.train.mirrors import mirror_kinds
from roost.train.mirrors.mirror_kinds import KINDS, enabled_mirrors
from roost.train.mirrors.sink import RunIdentity, flatten_settings
from tests.messages import Messages


def settings(**given: object) -> MirrorSettings:
    return msgspec.convert(given, MirrorSettings)


def test_those_that_are_switched_on_with_their_settings() -> None:
    assert enabled_mirrors(MirrorSettings()) == {}
    assert enabled_mirrors(settings(csv=True, tensorboard=False)) == {"csv": CsvSettings()}
    assert enabled_mirrors(settings(csv={"file": "a/b.csv"})) == {"csv": CsvSettings(file="a/b.csv")}
    found = enabled_mirrors(settings(mlflow=True, wandb={}, tensorboard=True))
    assert list(found) == ["tensorboard", "wandb", "mlflow"]


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr(mirror_kinds, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as found:
        enabled_mirrors(settings(csv=True, wandb=True))
    assert "wandb" in str(found.value)
    messages.check(found.value)
    assert found.value.fix == "pip install 'roost[loggers]'"


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_made_without_torch(kind: str, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from roost.train.mirrors.mirror_kinds import KINDS; "
        "from roost.train.mirrors.sink import RunIdentity; kind = KINDS[sys.argv[1]]; "
        "kind.make_sink(Path(sys.argv[2]), kind.settings(), RunIdentity(name='x')); "
        "assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", program, kind, tmp_path], check=True)
    assert list(tmp_path.iterdir()) == [], "nothing is written before it is opened"


@pytest.mark.parametrize("kind", ["csv", "tensorboard", "wandb"])  # mlflow takes seconds to import
def test_a_package_that_was_removed_does_not_come_back(kind: str, tmp_path: Path) -> None:
    """A mirror starts seconds after its run, on a busy machine later than a removal."""
    sink = KINDS[kind].make_sink(tmp_path / "removed", KINDS[kind].settings(), RunIdentity(name="x"))
    with pytest.raises(FileNotFoundError):
        sink.connect({})
        sink.flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("changed", [{"csv": {"file": "{}/m.csv"}}, {"tensorboard": {"folder": "{}"}}])
def test_a_folder_outside_of_the_package_is_made(changed: dict[str, dict[str, str]], tmp_path: Path) -> None:
    [(kind, given)] = changed.items()
    outside = {key: value.format(tmp_path / "other" / "place") for key, value in given.items()}
    package = tmp_path / "package"
    package.mkdir()
    [enabled] = enabled_mirrors(settings(**{kind: outside})).values()
    KINDS[kind].make_sink(package, enabled, RunIdentity(name="x")).connect({})
    assert (tmp_path / "other" / "place").is_dir()


def test_settings_as_text() -> None:
    given = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": {}, "f": None}
    assert flatten_settings(given) == {"a.b": "1", "a.c.d": "[1, 2]", "e": "{}", "f": "None"}
    assert RunIdentity(name="x").project == "roost"
