"""Sections that describe a Runner, a Dataset and hooks without classes of the project; and ``options``.

In a section with a ``class``, every key that is not named here is an argument of the class.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct, field

from roost.config.sections.field_types import Patterns, help_text


class ObjectSettings(Struct, frozen=True, kw_only=True):
    """A class with its arguments."""

    class_: Annotated[str, help_text("path of the class: torch.nn.Linear, or Net.py:Net")] = field(
        name="class"
    )
    arguments: dict[str, Any] = {}


class LossSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``runner.losses``."""

    class_: Annotated[str, help_text("path of the class or function")] = field(name="class")
    weight: Annotated[float, help_text("factor in the sum of losses")] = 1.0
    inputs: Annotated[Patterns | None, help_text("arguments of the call; by default [output, batch.1]")] = (
        None
    )
    arguments: dict[str, Any] = {}


class MetricSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``runner.metrics``."""

    class_: Annotated[str, help_text("path of a function, or of a class of torchmetrics")] = field(
        name="class"
    )
    inputs: Annotated[Patterns | None, help_text("arguments of the call; by default [output, batch.1]")] = (
        None
    )
    in_training: Annotated[
        bool | None, help_text("whether it is also computed in training; by default only for functions")
    ] = None
    arguments: dict[str, Any] = {}


class RunnerSettings(Struct, frozen=True, kw_only=True):
    """``runner`` as a section."""

    model: Annotated[ObjectSettings, help_text("the module to train")]
    losses: Annotated[dict[str, LossSettings], help_text("losses by name; their weighted sum is minimized")]
    inputs: Annotated[
        Patterns | None, help_text("parts of a batch with which the model is called; by default batch.0")
    ] = None
    metrics: Annotated[dict[str, MetricSettings], help_text("metrics by name")] = {}
    updates: Annotated[
        dict[str, list[str]],
        help_text("with several optimizers: the losses of each one, in the order of their updates"),
    ] = {}
    predicts: Annotated[
        dict[str, str],
        help_text("parts of the output that `roost predict` writes, by name; by default all"),
    ] = {}
    visualize: Annotated[
        str | None, help_text("a function (runner, batch) that returns media by name: Pictures.py:show")
    ] = None
    test: Annotated[
        str | None,
        help_text("a function (runner, batch, **variant) in place of evaluate: Search.py:decode"),
    ] = None
    worst_cases: Annotated[
        list[tuple[str, Literal["min", "max"], int]],
        help_text("cases that an evaluation lists: [[wer, max, 10]] are the ten with the largest"),
    ] = []


class DatasetSettings(Struct, frozen=True, kw_only=True):
    """``dataset`` as a section. A set is a class with its arguments; several sets have names. Beside them it
    takes ``ids``, and ``groups`` by name, each a list, a text file with a line for each sample, or a function
    of the set (``Data.py:speakers``); unless the class itself has an argument of this name."""

    train: Annotated[dict[str, Any], help_text("the training set; several sets by name")]
    valid: Annotated[dict[str, Any] | None, help_text("the validation set; several sets by name")] = None
    test: Annotated[dict[str, Any] | None, help_text("the test set; several sets by name")] = None
    collate: Annotated[
        str | dict[str, Any] | None, help_text("function that makes a batch of samples: Data.py:pad")
    ] = None
    info: Annotated[dict[str, Any], help_text("passed to the Runner as self.info")] = {}


class OptionSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``options``: the user's own key at the top of the config, with checks and help."""

    type: Annotated[
        Literal["int", "float", "str", "bool", "list", "dict"],
        help_text("type of the value; dict: a section of your own, with any keys"),
    ]
    default: Annotated[Any, help_text("value if none is given; without a default the option is required")] = (
        None
    )
    help: Annotated[str, help_text("one line for `roost run CONFIG --help`")] = ""
    choices: Annotated[list[Any], help_text("the allowed values")] = []
    min: Annotated[float | None, help_text("smallest allowed value")] = None
    max: Annotated[float | None, help_text("largest allowed value")] = None
