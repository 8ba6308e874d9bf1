"""A Runner, a Dataset and hooks that a config describes, with no class of the project's own; and its options.

Wherever a ``class`` is named, every key that is not named here is an argument of it.
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
    """One entry of ``runner.losses``."""

    class_: Annotated[str, help_text("path of the class or function")] = field(name="class")
    weight: Annotated[float, help_text("factor in the sum")] = 1.0
    inputs: Annotated[Patterns | None, help_text("what it is called with; [output, batch.1] if left out")] = (
        None
    )
    arguments: dict[str, Any] = {}


class MetricSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``runner.metrics``."""

    class_: Annotated[str, help_text("path of a function, or of a class of torchmetrics")] = field(
        name="class"
    )
    inputs: Annotated[Patterns | None, help_text("what it is called with; [output, batch.1] if left out")] = (
        None
    )
    in_training: Annotated[
        bool | None, help_text("whether it is measured in training, too; only functions are, if left out")
    ] = None
    arguments: dict[str, Any] = {}


class RunnerSettings(Struct, frozen=True, kw_only=True):
    """``runner`` as a section."""

    model: Annotated[ObjectSettings, help_text("the module that is trained")]
    losses: Annotated[dict[str, LossSettings], help_text("losses by name; trained is their weighted sum")]
    inputs: Annotated[
        Patterns | None, help_text("parts of a batch that the model is called with; batch.0 if left out")
    ] = None
    metrics: Annotated[dict[str, MetricSettings], help_text("what is measured, by name")] = {}
    updates: Annotated[
        dict[str, list[str]], help_text("of several optimizers: the losses that each moves on, in this order")
    ] = {}
    predicts: Annotated[
        dict[str, str],
        help_text("what `roost predict` writes, by name: parts of the output; all if left out"),
    ] = {}
    visualize: Annotated[
        str | None, help_text("a function (runner, batch) that gives media by name: Pictures.py:show")
    ] = None


class DatasetSettings(Struct, frozen=True, kw_only=True):
    """``dataset`` as a section. A set is a class with its arguments; several have names."""

    train: Annotated[dict[str, Any], help_text("the training set; several by name")]
    valid: Annotated[dict[str, Any] | None, help_text("the validation set; several by name")] = None
    test: Annotated[dict[str, Any] | None, help_text("the test set; several by name")] = None
    collate: Annotated[
        str | dict[str, Any] | None, help_text("function that joins samples to a batch: Data.py:pad")
    ] = None
    info: Annotated[dict[str, Any], help_text("handed to the Runner as self.info")] = {}


class OptionSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``options``: a key of yours at the top of the config, checked and explained."""

    type: Annotated[Literal["int", "float", "str", "bool", "list"], help_text("what it takes")]
    default: Annotated[Any, help_text("its value where nobody gives one; without it, it must be given")] = (
        None
    )
    help: Annotated[str, help_text("one line for `roost run CONFIG --help`")] = ""
    choices: Annotated[list[Any], help_text("the only values that it takes")] = []
    min: Annotated[float | None, help_text("its least value")] = None
    max: Annotated[float | None, help_text("its largest value")] = None
