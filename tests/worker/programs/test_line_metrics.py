"""Lines as scripts print them."""

from __future__ import annotations

import math

import pytest

from roost.worker.programs import line_metrics
from roost.worker.programs.line_metrics import LineParser, LineValues


def parse(line: str, **expressions: str) -> LineValues:
    return LineParser(expressions).parse(line)


@pytest.mark.parametrize(
    ("line", "metrics", "epoch", "step", "of"),
    [
        ("Epoch [2/5], Step [100/600], Loss: 0.2171", {"loss": 0.2171}, 2, 100, 600),
        ("epoch=3 train_loss=0.41 val_acc=0.88", {"train/loss": 0.41, "valid/acc": 0.88}, 3, None, None),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.29", {"train/loss": 2.29}, 1, 640, 60000),
        (
            "{'loss': 0.31, 'learning_rate': 2e-05, 'epoch': 1.5}",
            {"loss": 0.31, "learning_rate": 2e-05},
            1,
            None,
            None,
        ),
        (
            "Test set: Average loss: 0.05, Accuracy: 9826/10000 (98%)",
            {"test/average_loss": 0.05, "test/accuracy": 0.9826},
            None,
            None,
            None,
        ),
        ("Epoch: [0][  10/5005]\tTime 0.1 ( 0.2)\tLoss 6.9e+00 (7.0)", {"loss": 6.9}, 0, 10, 5005),
        ("step 100 loss 0.3 lr 1e-3", {"loss": 0.3, "lr": 1e-3}, None, 100, None),
        ("\x1b[1;32mloss\x1b[0m: \x1b[31m0.25\x1b[0m", {"loss": 0.25}, None, None, None),
        ("iter 250: loss 2.2, time 35ms, mfu 10%", {"loss": 2.2}, None, 250, None),
        (
            "step 0: train loss 4.2, val loss 4.3",
            {"train/loss": 4.2, "valid/loss": 4.3},
            None,
            0,
            None,
        ),
        ("loss: tensor(0.3, grad_fn=<x>)", {"loss": 0.3}, None, None, None),
        ("Final test accuracy is 0.93", {"test/accuracy": 0.93}, None, None, None),
        (
            "[epoch 2] train/loss=0.5 grad norm 1.2",
            {"train/loss": 0.5, "train/grad_norm": 1.2},
            2,
            None,
            None,
        ),
        (
            "[epoch 3] train: loss=0.3 acc=0.9 | val: loss=0.4",
            {"train/loss": 0.3, "train/acc": 0.9, "valid/loss": 0.4},
            3,
            None,
            None,
        ),
        ("\tVal. Loss: 0.4 |  Val. PPL: 1,234.5", {"valid/loss": 0.4, "valid/ppl": 1234.5}, None, None, None),
        ("Epochs: 3/10 loss 0.5", {"loss": 0.5}, 3, None, None),
        ("steps 30 loss 0.5 (epochs 2)", {"loss": 0.5}, 2, 30, None),
        ("3/3 [====] - 3s - loss: 0.2 - val_loss: 0.1", {"loss": 0.2, "valid/loss": 0.1}, None, None, None),
    ],
)
def test_usual_lines(
    line: str, metrics: dict[str, float], epoch: int | None, step: int | None, of: int | None
) -> None:
    found = parse(line)
    assert (dict(found.metrics), found.epoch, found.step, found.of) == (metrics, epoch, step, of)
    assert not found.is_bar


@pytest.mark.parametrize(
    "line",
    ["Running on port 8080 with batch_size=64", "Elapsed 10.2 s", "", "version 1.2.3", "a: b", "lossy 3"],
)
def test_other_numbers_are_no_metrics(line: str) -> None:
    assert parse(line).metrics == {}


@pytest.mark.parametrize(
    "line",
    [
        "Namespace(lr=0.1, epochs=10, batch_size=32, step=5)",
        "{'lr': 0.1, 'epochs': 10, 'max_iter': 5000}",
        "epochs: 10",
        "batch: 32",
        "Best epoch: 4",
    ],
)
def test_settings_are_no_position(line: str) -> None:
    found = parse(line)
    assert (found.epoch, found.step, found.of) == (None, None, None)
    assert found.metrics.keys() <= {"lr"}


def test_the_change_of_a_metric_is_no_metric() -> None:
    assert parse("Epoch 2: val_loss improved from 0.5 to 0.4, saving model").metrics == {}
    for line in ("HTTP error 404", "urllib: HTTP Error 503: busy", "return code 1", "error code: 7"):
        assert parse(line).metrics == {}


@pytest.mark.parametrize("label", ["Map", "Loading checkpoint shards", "Generating train split"])
def test_a_bar_that_prepares_something_counts_no_steps(label: str) -> None:
    found = parse(f"{label}: 100%|####| 25000/25000 [00:02<00:00, 12000.0 examples/s]")
    assert found == LineValues({}, is_bar=True, is_redrawn=True)


def test_values_that_are_not_finite() -> None:
    assert math.isnan(parse("Validation: loss nan").metrics["valid/loss"])
    assert parse("loss: -inf").metrics == {"loss": -math.inf}


def test_a_progress_bar() -> None:
    found = parse("epoch 3:  45%|####      | 450/1000 [00:10<00:12, 43.2it/s, loss=0.31]")
    assert found == LineValues({"loss": 0.31}, epoch=3, step=450, of=1000, is_bar=True, is_redrawn=True)
    assert parse("train:  10%|#  | 1/10 [00:00<00:01, loss=1]").metrics == {"train/loss": 1.0}


def test_what_the_trainer_of_hugging_face_prints_after_its_bar() -> None:
    logged = "{'loss': '0.6925', 'grad_norm': '0.317', 'learning_rate': '3.4e-05', 'epoch': '1.906'}"
    found = parse(f" 32%|###       | 61/192 [00:01<00:02, 58.36it/s]      {logged}")
    assert found.metrics == {"loss": 0.6925, "grad_norm": 0.317, "learning_rate": 3.4e-05}
    assert (found.epoch, found.step, found.of) == (None, 61, 192) and not found.is_redrawn
    assert parse("{'eval_loss': '0.5'}").metrics == {"valid/loss": 0.5}


def test_an_expression_of_the_user() -> None:
    parser = LineParser({"speed": r"(\d+) img/s", "gap": r"gap=(?P<other>\w+)", "rest": "left"})
    assert parser.parse("now 12 img/s, loss 0.5").metrics == {"speed": 12.0, "loss": 0.5}
    assert parser.parse("gap=none").metrics == {}
    assert parser.problems() == [
        "--metric gap matched no number: what its group matched is 'none'",
        "--metric rest matched no line of the output",
    ]
    assert parser.parse("gap=7").metrics == {"gap": 7.0}
    assert parser.parse("what is left").metrics == {}
    assert parser.problems() == ["--metric rest matched no number: what its group matched is 'left'"]


def test_lines_without_a_number_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are most of a large output, whose rest is read within seconds at the end."""
    monkeypatch.setattr(line_metrics, "_parse", None)
    assert parse("loss and accuracy are printed below | " * 10).metrics == {}


def test_a_line_without_an_end_costs_no_more_than_a_long_one() -> None:
    assert parse("x" * 10_000_000 + " loss: 1").metrics == {}


def test_an_expression_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_metrics, "_EXPRESSION_SECONDS", 0.1)
    parser = LineParser({"slow": "(a+)+$", "x": "x=(.)"})
    line = "a" * 60 + "! x=2"
    for _ in range(2):
        assert parser.parse(line).metrics == {"x": 2.0}
    assert parser.too_slow == ["slow"] and not parser.unmatched
