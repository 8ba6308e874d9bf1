"""What a script is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import roost
from roost.analysis.analysis_folder import SavedFiles
from roost.analysis.analysis_session import AnalysisSession
from roost.base.errors import ContractError, NotFound
from roost.project.loaded_model import load_experiment
from roost.project.package_context import package_code
from tests.messages import Messages
from tests.project.projects import DATASET
from tests.project.trained import trained

SETS = DATASET.replace("valid=data", 'valid={"clean": data, "noisy": data}, test=Odd(), collate=list')
SETS += """
class Odd:
    def __len__(self): return 5
    def __getitem__(self, i): return i
"""


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("trained"), data={"batch_size": 10, "valid": {"batch_size": 15}})


@pytest.fixture
def session(once: Any, tmp_path: Path) -> Iterator[AnalysisSession]:
    with package_code(once):
        made = AnalysisSession(once, load_experiment(once, device="cpu"))
        made._begin(SavedFiles(tmp_path))
        yield made


def test_what_it_has(session: AnalysisSession) -> None:
    assert session.args["width"] == 3 and session.model is session.runner
    assert type(session.dataset).__name__ == "Dataset" and isinstance(session.data, roost.Data)
    steps, values = session.log["valid/loss"]
    assert steps[-1] == 6 and values[-1] > 0
    assert session.checkpoint is not None and session.checkpoint.step == 6
    assert session.device == torch.device("cpu") and session.package.path.name == "run"
    assert not session.runner.training and all(not part.training for part in session.runner.modules())


def test_batches_are_those_of_an_evaluation(session: AnalysisSession) -> None:
    batches = list(session.batches())
    assert [len(x) for x, _ in batches] == [15, 15, 10], "the split's own size, and every sample"
    assert torch.equal(torch.cat([x for x, _ in batches]), session.data.valid.tensors[0])
    train = list(session.batches("train"))
    assert [len(x) for x, _ in train] == [10] * 4
    assert torch.equal(torch.cat([x for x, _ in train]), session.data.train.tensors[0]), "not shuffled"


def test_gradients_are_there_for_saliency(session: AnalysisSession) -> None:
    x, _ = next(iter(session.batches()))
    x.requires_grad_()
    session.model.net(x).sum().backward()
    assert x.grad is not None and bool(x.grad.any())


def test_sets_by_name_and_the_projects_collate(tmp_path: Path, messages: Messages) -> None:
    package = trained(tmp_path, dataset=SETS.replace("collate=list", "collate=join") + JOIN)
    with package_code(package):
        made = AnalysisSession(package, load_experiment(package, device="cpu"))
        made._begin(SavedFiles(tmp_path))
        assert [len(x) for x, _ in made.batches("valid/noisy")] == [10] * 4
        assert list(made.batches("test")) == [[0, 1, 2, 3, 4]]
        for wrong in ("valid", "valid/noise", "all"):
            with pytest.raises(NotFound, match="train, valid/clean, valid/noisy, test") as refused:
                made.batches(wrong)
            messages.check(refused.value)


JOIN = """
def join(samples):
    return samples if isinstance(samples[0], int) else torch.utils.data.default_collate(samples)
"""


def test_saves_what_can_be_looked_at(session: AnalysisSession, tmp_path: Path) -> None:
    saved = [
        session.save("figure", Figure()),
        session.save("words", "text"),
        session.save("words.txt", "more"),
        session.save("picture", roost.Media("image", np.zeros((4, 4)))),
        session.save("weights", torch.ones(2, 2, requires_grad=True)),
        session.save("array", np.arange(3)),
    ]
    names = ["figure.png", "words.txt", "words-2.txt", "picture.png", "weights.npy", "array.npy"]
    assert saved == [tmp_path / name for name in names] and all(path.is_file() for path in saved)
    assert np.load(tmp_path / "weights.npy").tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_what_cannot_be_saved(session: AnalysisSession, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"save\('x'\).*'object'") as refused:
        session.save("x", object())
    messages.check(refused.value)
    with pytest.raises(ContractError, match=r"'\.\./x'") as refused:
        session.save("../x", "text")
    messages.check(refused.value)
    assert list(tmp_path.iterdir()) == []
