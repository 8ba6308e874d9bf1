"""The classes that a config may name; the search among torch's own classes is tested in test_objects.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

import roost
from roost.config.allowed_classes import ClassPathError, import_allowed, is_allowed, require_allowed
from tests.messages import Messages


@pytest.mark.parametrize(
    "path",
    ["roost.Arrays", "roost.Sampled", "torch.utils.data.ConcatDataset", "torch.nn.Linear"]
    + [f"sklearn.datasets.load_{name}" for name in ("digits", "iris", "wine", "breast_cancer", "diabetes")],
)
def test_named(path: str) -> None:
    require_allowed(path)
    assert is_allowed(path) and callable(import_allowed(path))


def test_they_are_those_of_the_libraries() -> None:
    from sklearn.datasets import load_digits

    assert import_allowed("roost.Arrays") is roost.Arrays
    assert import_allowed("sklearn.datasets.load_digits") is load_digits


@pytest.mark.parametrize(
    ("path", "proposed"),
    [
        ("sklearn.datasets.load_files", None),
        ("sklearn.datasets.fetch_openml", None),
        ("sklearn.datasets.fetch_20newsgroups", None),
        ("sklearn.datasets.load_digits.__globals__", None),
        ("sklearn.datasets._base.load_digits", "sklearn.datasets.load_digits"),
        ("sklearn.load_iris", "sklearn.datasets.load_iris"),
        ("sklearn.svm.SVC", None),
        ("roost.Package", None),
        ("roost.config.objects.locate", None),
        ("roost.Array", "roost.Arrays"),
        ("Arrays", "roost.Arrays"),
        ("torch.utils.data.TensorDataset", "roost.Arrays"),
        ("torch.utils.data.DataLoader", "roost.Arrays"),
        ("torch.utils.data.ConcatDatasets", "torch.utils.data.ConcatDataset"),
        ("torch.load", None),
        ("numpy.load", None),
        ("builtins.eval", None),
        ("os.system", None),
    ],
)
def test_refused(path: str, proposed: str | None, messages: Messages) -> None:
    assert not is_allowed(path)
    with pytest.raises(ClassPathError) as caught:
        require_allowed(path)
    messages.check(caught.value.detail)  # what it proposes depends on what is loaded
    assert repr(path) in caught.value.detail
    assert proposed is None or proposed in str(caught.value)


def test_a_library_that_is_missing_is_named_as_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    import importlib

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ClassPathError) as refused:
        import_allowed("sklearn.datasets.load_digits")
    messages.check(refused.value)
    assert "sklearn" in str(refused.value) and "pip install scikit-learn" in str(refused.value)


def test_checking_imports_nothing() -> None:
    code = (
        "import sys\nfrom roost.config.allowed_classes import require_allowed\n"
        "for path in ('roost.Arrays', 'torch.nn.Linear', 'torchmetrics.F1Score', 'roost.Sampled'):\n"
        "    require_allowed(path)\nprint({'torch', 'sklearn', 'torchmetrics'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
