from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.project.dlnest import import_names
from roost.project.dlnest.classes.torch_runner import RunnerBaseTorch
from roost.project.dlnest.plugins.mails_note import MailsNote


@pytest.fixture(autouse=True)
def removed() -> Iterator[None]:
    import_names.uninstall()
    yield
    import_names.uninstall()


def test_every_name_resolves_while_installed() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("DLNest.Common")
    import_names.install()
    for name, paths in import_names.MODULES.items():
        module = importlib.import_module(name)
        assert all(hasattr(module, path.partition(":")[2]) for path in paths)
    assert importlib.import_module("DLNest.Common.RunnerBaseTorch").RunnerBaseTorch is RunnerBaseTorch
    assert importlib.import_module("DLNest.Common.ModelBaseTorch").ModelBaseTorch is RunnerBaseTorch
    assert sys.modules["DLNest"].Plugins.MailsNote.DLNestPlugin is MailsNote
    import_names.uninstall()
    assert not any(name.startswith("DLNest") for name in sys.modules)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("DLNest.Common")


def test_a_name_that_does_not_exist() -> None:
    import_names.install()
    with pytest.raises(ModuleNotFoundError, match=r"DLNest\.Common\.Other"):
        importlib.import_module("DLNest.Common.Other")


def test_an_installed_distribution_is_not_used_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "DLNest").mkdir()
    (tmp_path / "DLNest" / "__init__.py").write_text("real = True")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("DLNest").real
    import_names.install()
    import_names.install()
    assert not hasattr(importlib.import_module("DLNest"), "real")
    assert capsys.readouterr().out.count("DLNest") == 1
    import_names.uninstall()
    assert importlib.import_module("DLNest").real
