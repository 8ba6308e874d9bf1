"""Runs that a config describes, beside the same by hand: the same bits in weights, optimizers and rows."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import roost
from roost.base.errors import ConfigError, ContractError
from roost.package.setting_locations import setting_locations
from roost.project import native_project
from roost.project.package_context import package_code
from tests.messages import Messages
from tests.project.described import (
    ACCURACY,
    LABEL,
    MODEL,
    NATIVE,
    NATIVE_DATASET,
    SETS,
    assert_same,
    described,
    flat,
    project,
    rows,
    run,
    state_of,
)

# --- the same bits as by hand -------------------------------------------------------------------------


def test_one_loss_and_a_metric(tmp_path: Path) -> None:
    by_hand = """
    def loss(self, batch):
        x, y = batch
        output = self.model(x)
        return {"loss": self.criterion(output["logits"], y), "accuracy": hits(output, y).mean()}
    def evaluate(self, batch):
        x, y = batch
        output = self.model(x)
        return {"loss": self.criterion(output["logits"], y), "accuracy": hits(output, y)}
"""
    hand = run(tmp_path / "a", runner_code=NATIVE + by_hand, dataset_code=NATIVE_DATASET)
    ours = run(tmp_path / "b", runner=described(metrics={"accuracy": ACCURACY}))
    assert_same(hand, ours)
    assert {"train/loss", "train/accuracy", "valid/loss", "valid/accuracy"} <= rows(ours)[1].keys()
    # A section beside a class of the project's own: both ways.
    assert_same(hand, run(tmp_path / "c", runner_code=NATIVE + by_hand))
    assert_same(
        hand,
        run(tmp_path / "d", runner=described(metrics={"accuracy": ACCURACY}), dataset_code=NATIVE_DATASET),
    )


def test_several_losses_with_weights(tmp_path: Path) -> None:
    by_hand = """
    def loss(self, batch):
        x, y = batch
        output = self.model(x)
        label, second = self.criterion(output["logits"], y), self.criterion(output["second"][0], y)
        size = ring(output["features"], radius=2.0)
        found = {"loss": label + 0.1 * size + 0.5 * second, "label": label, "ring": size, "second": second}
        sizes = output["features"].abs()
        found.update(sizes_largest=sizes.amax(1), sizes_mean=sizes.mean())
        return {**found, "sizes_largest": found["sizes_largest"].mean()} if self.training else found
    def evaluate(self, batch):
        return self.loss(batch)
"""
    losses = {
        "label": LABEL,
        "ring": {"class": "Own.py:ring", "weight": 0.1, "inputs": "output.features", "radius": 2.0},
        "second": {
            "class": "torch.nn.functional.cross_entropy",
            "weight": 0.5,
            "inputs": ["output.second.0", "batch.1"],
        },
    }
    sizes = {"sizes": {"class": "Own.py:sizes", "inputs": "output"}}
    hand = run(tmp_path / "a", runner_code=NATIVE + by_hand, gradient_accumulation_steps=2)
    ours = run(tmp_path / "b", runner=described(losses=losses, metrics=sizes), gradient_accumulation_steps=2)
    assert_same(hand, ours)


TWO = {
    "body": {"class": "torch.optim.SGD", "lr": 0.1, "params": ["model.body.*", "model.head.*"]},
    "tail": {"class": "torch.optim.Adam", "lr": 0.01, "params": "model.tail.*"},
}
UPDATES = {"tail": ["second"], "body": ["label", "ring"]}
LOSSES = {
    "label": LABEL,
    "second": {**LABEL, "inputs": ["output.second.0", "batch.1"]},
    "ring": {"class": "Own.py:ring", "weight": 0.1, "inputs": ["output.features"]},
}


def test_two_optimizers_each_on_its_own_losses(tmp_path: Path) -> None:
    by_hand = """
    def second(self, batch):
        x, y = batch
        loss = self.criterion(self.model(x)["second"][0], y)
        return {"loss": loss, "second": loss}
    def rest(self, batch):
        x, y = batch
        output = self.model(x)
        label, size = self.criterion(output["logits"], y), ring(output["features"])
        return {"loss": label + 0.1 * size, "label": label, "ring": size, "accuracy": hits(output, y).mean()}
    def update(self, stepper, batches):
        second = stepper.run(self.second, batches, optimizer="tail")
        return {**second, **stepper.run(self.rest, batches, optimizer="body")}
    def evaluate(self, batch):
        x, y = batch
        output = self.model(x)
        label, size = self.criterion(output["logits"], y), ring(output["features"])
        second = self.criterion(output["second"][0], y)
        found = {"label": label, "second": second, "ring": size, "accuracy": hits(output, y)}
        return {"loss": label + second + 0.1 * size, **found}
"""
    section = described(losses=LOSSES, updates=UPDATES, metrics={"accuracy": ACCURACY})
    hand = run(tmp_path / "a", runner_code=NATIVE + by_hand, optimizers=TWO)
    ours = run(tmp_path / "b", runner=section, optimizers=TWO)
    assert_same(hand, ours)
    assert {"train/tail_loss", "train/body_loss", "train/second", "train/label", "valid/loss"} <= rows(ours)[
        1
    ].keys()


def test_several_sets_and_a_collate(tmp_path: Path) -> None:
    data = """
import roost
from Own import *
class Dataset(roost.Dataset):
    def build(self):
        train = {"clean": roost.Arrays(points(26, 1)), "noisy": roost.Arrays(loud(2.0))}
        valid = {"clean": roost.Arrays(points(11, 2)), "noisy": roost.Arrays(loud(3.0))}
        return roost.Data(train=train, valid=valid, collate=pair_of, info={"classes": 3})
"""
    by_hand = """
    def loss(self, batch):
        clean, noisy = batch["clean"], batch["noisy"]
        assert self.info["classes"] == 3
        x, y = torch.cat([clean["x"], noisy["x"]]), torch.cat([clean["more"][0], noisy["more"][0]])
        return self.criterion(self.model(x)["logits"], y)
    def evaluate(self, batch):
        return {"loss": self.criterion(self.model(batch["x"])["logits"], batch["more"][0])}
"""
    sets = {
        split: {
            "clean": {
                "class": "roost.Arrays",
                "arrays": {"class": "Own.py:points", "number": number, "seed": seed},
            },
            "noisy": {"class": "roost.Arrays", "arrays": {"class": "Own.py:loud", "factor": factor}},
        }
        for split, number, seed, factor in (("train", 26, 1, 2.0), ("valid", 11, 2, 3.0))
    }
    section = {**sets, "collate": "Own.py:pair_of", "info": {"classes": 3}}
    options: dict[str, Any] = {
        "data": {"batch_size": 8, "mix": {"mode": "max_size_cycle"}},
        "runner_code": NATIVE + by_hand,
    }
    assert_same(
        run(tmp_path / "a", dataset_code=data, **options), run(tmp_path / "b", dataset=section, **options)
    )


def test_parts_of_several_loaders(tmp_path: Path) -> None:
    sets = {**SETS, "train": {"one": SETS["train"], "two": SETS["train"]}, "valid": None}
    losses = {"label": {**LABEL, "inputs": ["output.logits", "batch.two.1"]}}
    section = described(inputs=["batch.two.0"], losses=losses)
    data = {"batch_size": 8, "mix": {"mode": "min_size"}}
    made = run(tmp_path, runner=section, dataset=sets, data=data, test_at_end="none")
    assert rows(made)[-1]["train/loss"] < rows(made)[0]["train/loss"]


# --- metrics of a whole set ---------------------------------------------------------------------------


def test_torchmetrics_see_the_whole_set(tmp_path: Path) -> None:
    from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score

    inputs = ["output.logits", "batch.1"]
    metrics = {
        "auroc": {"class": "torchmetrics.classification.MulticlassAUROC", "num_classes": 3, "inputs": inputs},
        "f1": {
            "class": "torchmetrics.classification.MulticlassF1Score",
            "num_classes": 3,
            "average": None,
            "inputs": inputs,
        },
        "accuracy": ACCURACY,
    }
    made = run(
        tmp_path, runner=described(metrics=metrics), data={"batch_size": 8, "valid": {"batch_size": 3}}
    )
    last = [row for row in rows(made) if "valid/auroc" in row][-1]
    assert last["step"] == 12 and not [name for name in last if "rows" in name]
    with package_code(made):
        experiment = native_project.load(made, project="", device="cpu")
        runner: Any = experiment.runner
        runner.load_state_dict(state_of(made)["model"]["state"])
        x, y = (experiment.data.valid.tensors[i] for i in (0, 1))
        with torch.no_grad():
            logits = torch.cat([runner.eval().model(part)["logits"] for part in x.split(3)])
    assert last["valid/auroc"] == float(MulticlassAUROC(num_classes=3)(logits, y))
    each = MulticlassF1Score(num_classes=3, average=None)(logits, y)
    assert [last[f"valid/f1_{i}"] for i in range(3)] == each.tolist()


def test_only_what_is_asked_for_is_overridden(tmp_path: Path) -> None:
    """A `summarize` would keep all values of a set, and a `visualize` be called."""
    names = ("summarize", "visualize", "update")
    made = class_of(tmp_path / "a", metrics={"accuracy": ACCURACY})
    assert all(getattr(made, name) is getattr(roost.Runner, name) for name in names)
    of_set = {"f1": {"class": "torchmetrics.classification.MulticlassF1Score", "num_classes": 3}}
    made = class_of(tmp_path / "b", metrics=of_set, visualize="Own.py:shown", updates={"main": ["label"]})
    assert not any(getattr(made, name) is getattr(roost.Runner, name) for name in names)
    assert made().visualize([torch.zeros(7, 4)]) == {"text": "7 of ConfiguredRunner"}


def class_of(folder: Path, **section: Any) -> type[roost.Runner]:
    made = project(folder, runner=described(**section))
    with package_code(made):
        return native_project.runner_class(
            native_project.resolve_settings(made, "")[1], made.path, setting_locations(made)
        )


# --- the rest of a run --------------------------------------------------------------------------------


def test_losses_with_parameters_belong_to_the_runner(tmp_path: Path) -> None:
    losses = {
        "label": LABEL,
        "centers": {"class": "Own.py:Centers", "width": 5, "inputs": ["output.features", "batch.1"]},
    }
    one = {"main": {"class": "torch.optim.SGD", "lr": 0.1}}
    model = run(tmp_path / "a", runner=described(losses=losses), optimizers=one)
    whole = flat(state_of(model)["model"])
    (name,) = [key for key in whole if key.endswith("loss_modules.centers.centers")]
    started = run(tmp_path / "b", runner=described(losses=losses), optimizers=one, steps=1)
    assert not torch.equal(whole[name], flat(state_of(started)["model"])[name]), "it is trained"


def test_going_on_gives_the_same_bits(tmp_path: Path) -> None:
    section = described(losses=LOSSES, updates=UPDATES, metrics={"accuracy": ACCURACY})
    hooks = ["Own.py:Rests", {"class": "Own.py:Keeps", "step": 5}]
    whole = run(tmp_path / "a", runner=section, optimizers=TWO, hooks=hooks)
    cut = run(tmp_path / "b", runner=section, optimizers=TWO, hooks=hooks, cut=6)
    a, b = flat(state_of(whole)), flat(state_of(cut))
    assert all(torch.equal(a[name], b[name]) for name in a if isinstance(a[name], torch.Tensor))
    assert rows(whole)[-1] == rows(cut)[-1]


def test_predict(tmp_path: Path) -> None:
    x = torch.randn(3, 4)

    def runner_of(folder: Path, **more: Any) -> Any:
        made = run(folder, steps=1, runner=described(**more))
        with package_code(made):
            return native_project.load(made, project="", device="cpu").runner.eval()

    bare = runner_of(tmp_path / "a")
    assert bare.predict(x).keys() == {"logits", "features", "second"}
    assert torch.equal(bare.predict(x)["logits"], bare.predict((x,))["logits"]), "a batch without labels"
    chosen = runner_of(tmp_path / "b", predicts={"scores": "output.second.0", "of": "batch.0"})
    found = chosen.predict([x])
    assert found.keys() == {"scores", "of"} and found["of"] is x and found["scores"].shape == (3, 3)
    for output, names in ((x, {"output"}), ((x, x), {"output_0", "output_1"})):
        bare.model = _Gives(output)
        assert bare.predict(x).keys() == names


class _Gives(torch.nn.Module):
    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Any) -> Any:
        return self.output


def test_the_loss_of_an_update_is_the_same_in_each_step(tmp_path: Path) -> None:
    """torch.compile makes kernels for each function that it has not seen; and a copy has its own."""
    runner: Any = class_of(tmp_path, updates={"main": ["label"]})()
    first = runner.loss_of_main
    assert first == runner.loss_of_main and hash(first) == hash(runner.loss_of_main)
    assert copy.deepcopy(runner).loss_of_main.__self__ is not runner


# --- what is wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "setting", "facts"),
    [
        (
            {"inputs": ["batch.image"]},
            "runner.inputs",
            r"batch\.image.* 2: float32 \(8, 4\), int64 \(8,\).*'batch\.image' \(at config\.yaml:4\)",
        ),
        (
            {"losses": {"label": {**LABEL, "inputs": ["output.logit", "batch.1"]}}},
            "runner.losses.label.inputs",
            r"output\.logit.* logits: .*'logits'",
        ),
        (
            {"losses": {"label": {**LABEL, "inputs": ["output.logits.0", "batch.1"]}}},
            "runner.losses.label.inputs",
            r"output\.logits\.0.* output\.logits .*float32 \(8, 3\)",
        ),
        (
            {"losses": {"label": {**LABEL, "reduction": "none"}}},
            "runner.losses.label",
            r"float32 \(8,\)",
        ),
        (
            {
                "metrics": {
                    "hits": {"class": "torch.nn.functional.softmax", "dim": 1, "inputs": "output.logits"}
                }
            },
            "runner.metrics.hits",
            r"float32 \(8, 3\)",
        ),
        (
            {"metrics": {"f1": {"class": "torchmetrics.classification.MulticlassF1Score", "num_classes": 3}}},
            "runner.metrics.f1",
            "output.* logits",
        ),
        (
            {"losses": {"label": {"class": "torch.nn.CrossEntropyLoss", "inputs": ["output.logits"]}}},
            "runner.losses.label.inputs",
            r"torch\.nn\.CrossEntropyLoss .*1 .* input, target",
        ),
        (
            {"inputs": []},
            "runner.inputs",
            r"Own\.py:Net .*0 .*config\.yaml",
        ),
        (
            {"visualize": "Own.py:sizes"},
            "runner.visualize",
            r"Own\.py:sizes .*2 ",
        ),
        (
            {
                "metrics": {
                    "f1": {
                        "class": "torchmetrics.classification.MulticlassF1Score",
                        "num_classes": 3,
                        "in_training": True,
                    }
                }
            },
            "runner.metrics.f1.in_training",
            r"MulticlassF1Score.* True",
        ),
        (
            {"losses": {"ring": {"class": "Own.py:ring", "inputs": "output.features", "radios": 2}}},
            "runner.losses.ring.radios",
            r"Own\.py:ring .*'radios'.*'radius'",
        ),
        (
            {"model": {"class": "Own.py:ring"}, "inputs": ["batch.0"]},
            "runner.model",
            r"torch\.nn\.Module",
        ),
        (
            {"model": {"class": "torch.nn.LazyLinear", "out_features": 3}},
            "runner.model",
            "weight, bias ",
        ),
        ({"model": {**MODEL, "depth": 3}}, "runner.model.depth", r"Own\.py:Net .*'depth'"),
        (
            {"model": {"class": "torch.nn.Linear", "in_features": "4", "out_features": 3}},
            "runner.model.in_features",
            "'4'",
        ),
    ],
)
def test_one_clear_error(
    section: dict[str, Any], setting: str, facts: str, tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises((ConfigError, ContractError), match=facts) as refused:
        run(tmp_path, runner=described(**section), provenance={"runner.inputs": "config.yaml:4"})
    assert refused.value.setting == setting
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("section", "setting", "facts"),
    [
        (
            {"train": {"class": "roost.Arrays", "arrays": "nowhere.npz"}},
            "dataset.train.arrays",
            r"No such file or directory: 'nowhere\.npz'",
        ),
        (
            {"train": {**SETS["train"], "shapes": [2, 2]}},
            "dataset.train.shapes",
            r"roost\.Arrays .*'shapes'.*'shape'",
        ),
        ({**SETS, "collate": {"valdi": "Own.py:pair_of"}}, None, "'valdi'.*'valid'"),
    ],
)
def test_sets_that_cannot_be_made(
    section: dict[str, Any], setting: str | None, facts: str, tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises((ConfigError, ContractError), match=facts) as refused:
        run(tmp_path, runner=described(), dataset=section)
    assert refused.value.setting == setting
    messages.check(refused.value)
