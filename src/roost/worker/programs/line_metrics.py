"""Metrics, positions and progress bars in lines of a program's output, in the forms that scripts usually
print::

    Epoch [2/5], Step [100/600], Loss: 0.2171        epoch=3 train_loss=0.41 val_acc=0.88
    Train Epoch: 1 [640/60000 (1%)]  Loss: 2.29      {'loss': 0.31, 'learning_rate': 2e-05, 'epoch': 1.0}
    Test set: Average loss: 0.05, Accuracy: 9826/10000 (98%)
    epoch 3:  45%|####      | 450/1000 [00:10<00:12, 43.2it/s, loss=0.31]

A number is a metric if one of the words before it is a usual name of one (`_METRIC_WORDS`); all other numbers
are no metrics, unless the user names them by an expression.
"""

# Standard library only

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from types import FrameType
from typing import NamedTuple, NoReturn

_METRIC_WORDS = frozenset([
    "loss", "losses", "acc", "accuracy", "error", "err", "f1", "auc", "auroc", "map", "miou", "iou",
    "dice", "bleu", "rouge", "wer", "cer", "ppl", "perplexity", "nll", "kl", "elbo", "bpc", "bpb", "mse",
    "rmse", "mae", "psnr", "ssim", "fid", "precision", "recall", "score", "reward", "return", "lr",
    "top1", "top5", "norm",
])  # fmt: skip
_EPOCH_WORDS = frozenset(["epoch", "epochs", "ep"])
_STEP_WORDS = frozenset(
    ["step", "steps", "iter", "iters", "iteration", "iterations", "batch", "update", "it"]
)
_SPLITS = {
    "train": "train", "training": "train", "val": "valid", "valid": "valid", "validation": "valid",
    "validate": "valid", "dev": "valid", "eval": "valid", "evaluation": "valid", "test": "test",
    "testing": "test",
}  # fmt: skip
_UNSURE_POSITIONS = frozenset(["epochs", "steps", "iters", "iterations", "batch"])
"""In a line without a result these are settings, such as ``epochs: 10``, unless a total follows: 3/10."""
_OTHER_POSITIONS = frozenset(["max", "num", "n", "number", "warmup", "best"])
"""Before a word of a position: ``max_iter``, "best epoch"."""
_RATES = frozenset(["lr", "learning_rate"])
_OTHER_BARS = frozenset([
    "loading", "downloading", "fetching", "map", "filter", "generating", "tokenizing", "preprocessing",
    "preparing", "processing", "extracting", "saving", "resolving", "caching", "uploading", "flattening",
    "casting",
])  # fmt: skip
"""Bars with such a word prepare something: they count no steps."""
_STATUS_WORDS = frozenset(["code", "status", "http", "errno"])
"""A number after such a word is no result: "HTTP error 404", "return code 1"."""
_FILLERS = frozenset(["is", "was", "of", "the", "at"])
_NO_VALUES = frozenset(["from", "to", "than", "by"])
"""After these a number is no value: "val_loss improved from 0.5"."""
_SETTINGS = "Namespace("
"""A line with the arguments of argparse has no results."""
_THOUSANDS = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?(?!,?\d)"
_NUMBER = rf"[-+]?(?:{_THOUSANDS}|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan\b|inf\b)"
_HAS_NUMBER = re.compile(r"\d|nan|inf", re.IGNORECASE)
"""Most lines of a large output have none; without this look they would cost a hundred times as much."""
_PAIR = re.compile(
    r"(?<![A-Za-z_])(?P<name>[A-Za-z_][\w@./-]*(?:[ ][A-Za-z_][\w@./-]*){0,2})['\"]?(?:\s*[:=]\s*|\s+)"
    rf"[\[(]?\s*(?:tensor\(|['\"])?(?P<value>{_NUMBER})(?![\w.])(?:\s*(?:/|of)\s*(?P<of>\d+(?:\.\d+)?))?",
    re.IGNORECASE,
)
_WITHIN = re.compile(r"[\[(]\s*(?P<value>\d+)\s*/\s*(?P<of>\d+)")
_BAR = re.compile(
    r"(?P<label>[^|]*?)\d+%\|[^|]*\|\s*(?P<value>\d+)/(?P<of>\d+)\s*\[(?P<rest>[^\]]*)\]?(?P<after>.*)"
)
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WORD = re.compile(r"[A-Za-z]+[0-9]*")
_MAX_COUNT = 2**40
"""A larger number is no position."""
MAX_LINE = 2000
"""The longest line that is read; expressions of users may be slow on longer ones."""
_EXPRESSION_SECONDS = 1.0
_SHOWN = 40


class LineValues(NamedTuple):
    """The content of one line, or of one state of a progress bar."""

    metrics: Mapping[str, float]
    epoch: int | None = None
    epochs: int | None = None
    """The number of epochs, if the line has it."""
    step: int | None = None
    of: int | None = None
    """The number of steps: of an epoch if the line has one, else of the run."""
    is_bar: bool = False
    is_redrawn: bool = False
    """Whether its metrics are only those of a bar, which is redrawn all the time."""


class LineParser:
    """Reads lines.

    Args:
        expressions: Expressions of the user by the names of the metrics. The value is the group ``value``, or
            the first group, or the whole match.

    Attributes:
        unmatched: The names whose expressions have found no number so far.
        too_slow: The names whose expressions are not used any more: on one line they took more than a second.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self._expressions = {name: re.compile(text) for name, text in expressions.items()}
        self.unmatched = set(self._expressions)
        self._no_numbers: dict[str, str] = {}
        """What the expressions of these names have matched first that is no number."""
        self.too_slow: list[str] = []

    def parse(self, line: str) -> LineValues:
        """Returns what a line says."""
        line = _COLOR.sub("", line[:MAX_LINE])
        found = _parse(line) if _HAS_NUMBER.search(line) else LineValues({})
        own = self._own(line) if self._expressions else {}
        return found._replace(metrics={**found.metrics, **own}) if own else found

    def problems(self) -> list[str]:
        """Returns what was wrong with expressions so far, a line for each."""
        found = [
            f"{name} took more than a second for one line, and was used no more" for name in self.too_slow
        ]
        for name in sorted(self.unmatched):
            if (text := self._no_numbers.get(name)) is None:
                found.append(f"{name} matched no line of the output")
            else:
                found.append(f"{name} matched no number: what its group matched is {text[:_SHOWN]!r}")
        return [f"--metric {one}" for one in found]

    def _own(self, line: str) -> dict[str, float]:
        found = {}
        for name, expression in list(self._expressions.items()):
            try:
                match = _search(expression, line)
            except TimeoutError:
                del self._expressions[name]
                self.unmatched.discard(name)
                self.too_slow.append(name)
                continue
            if match is None:
                continue
            groups = match.groupdict()
            text = groups.get("value") or (match[1] if match.re.groups else match[0])
            try:
                found[name] = float(text)
            except (TypeError, ValueError):  # matched something else
                self._no_numbers.setdefault(name, text or "")
                continue
            self.unmatched.discard(name)
        return found


def _search(expression: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Searches; raises TimeoutError after `_EXPRESSION_SECONDS`, which needs the main thread."""
    before = signal.signal(signal.SIGALRM, _raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, _EXPRESSION_SECONDS)
    try:
        return expression.search(line)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raise_timeout(number: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError


def _parse(line: str) -> LineValues:
    bar = _BAR.search(line) if "%|" in line else None
    return _parse_bar(bar) if bar is not None else _parse_line(line)


def _parse_bar(bar: re.Match[str]) -> LineValues:
    if _OTHER_BARS.intersection(word.lower() for word in _WORD.findall(bar["label"])):
        return LineValues({}, is_bar=True, is_redrawn=True)
    label = _parse_line(bar["label"] + " ")
    # Hugging Face's Trainer prints what it logs after the bar, in the same line.
    after = _parse_line(bar["after"])
    metrics = {**_parse_line(bar["rest"]).metrics, **after.metrics}
    split = _split_of(bar["label"])
    if split is not None:
        metrics = {name if "/" in name else f"{split}/{name}": value for name, value in metrics.items()}
    step, of = _count(bar["value"]), _count(bar["of"])
    is_redrawn = not after.metrics
    return LineValues(metrics, label.epoch, label.epochs, step, of, is_bar=True, is_redrawn=is_redrawn)


def _parse_line(line: str) -> LineValues:
    metrics: dict[str, float] = {}
    epoch = epochs = step = of = None
    taken: set[int] = set()
    unsure = list[str]()
    for match in _PAIR.finditer(line) if _SETTINGS not in line else ():
        words = [word.lower() for word in _WORD.findall(match["name"])] or [""]
        total, is_other = match["of"], _OTHER_POSITIONS.intersection(words)
        if words[-1] in _UNSURE_POSITIONS and total is None:
            unsure.append(words[-1])
        if words[-1] in _EPOCH_WORDS and not is_other:
            epoch, epochs = _count(match["value"]), epochs if total is None else _count(total)
            taken.add(match.start("value"))
        elif words[-1] in _STEP_WORDS and match["value"].isdecimal() and not is_other:
            step, of = _count(match["value"]), None if total is None else _count(total)
            taken.add(match.start("value"))
        elif not (words[-1] in _NO_VALUES or _STATUS_WORDS.intersection(words)) and (
            _METRIC_WORDS.intersection(words) or words[-2:] == ["learning", "rate"]
        ):
            value = _float(match["value"])
            if total is not None and float(total):  # 9826/10000
                value /= float(total)
            metrics[_metric_name(match["name"], line[: match.start()])] = value
    if unsure and _RATES.issuperset(metrics):
        epoch = None if _EPOCH_WORDS.intersection(unsure) else epoch
        step = None if _STEP_WORDS.intersection(unsure) else step
    if epoch is not None and step is None:
        within = next((one for one in _WITHIN.finditer(line) if one.start("value") not in taken), None)
        if within is not None:
            step, of = _count(within["value"]), _count(within["of"])
    return LineValues(metrics, epoch, epochs, step, of)


def split_name(name: str) -> str:
    """Returns the name of a metric of another source than the output, as it would be in a line of it:
    ``val_loss`` is ``valid/loss``. Otherwise a metric that is both printed and logged would be two."""
    first, _, rest = name.partition("_")
    return f"{_SPLITS[first]}/{rest}" if rest and first in _SPLITS and "/" not in rest else name


def _count(text: str) -> int | None:
    """Returns a position; of a fraction of an epoch, as Hugging Face prints it, the whole part."""
    value = _float(text)
    return int(value) if 0 <= value < _MAX_COUNT else None


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def _split_of(text: str) -> str | None:
    """Returns the split that a text names last: after "train: loss 0.3 | val:" it is valid."""
    found = [_SPLITS[word] for word in (one.lower() for one in _WORD.findall(text)) if word in _SPLITS]
    return found[-1] if found else None


def _metric_name(text: str, before: str) -> str:
    """Returns the name of a metric: ``val_loss`` and "Validation loss" are ``valid/loss``; a name that has a
    slash stays as it is.

    Args:
        text: The words before the number.
        before: The line before them: "Test set: Average loss" is of the test set.
    """
    if "/" in text:
        return text.strip().replace(" ", "_")
    words = [word for word in (one.strip(".") for one in re.split(r"[\s_]+", text)) if word]
    split = next((_SPLITS[word.lower()] for word in words if word.lower() in _SPLITS), None)
    rest = [word for word in words if word.lower() not in _SPLITS and word.lower() not in _FILLERS]
    name = "_".join(rest).lower() if rest else text.strip().lower()
    split = split or _split_of(before)
    return f"{split}/{name}" if split is not None else name
