"""A Runner and a Dataset described by a config, without classes of the project."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from roost.base.errors import ConfigError, ContractError
from roost.config import call_arguments, objects
from roost.config.sections.yaml_project import (
    DatasetSettings,
    LossSettings,
    MetricSettings,
    ObjectSettings,
    RunnerSettings,
)
from roost.config.settings import Where
from roost.project.contract import Data, Dataset, Runner
from roost.project.yaml import set_columns
from roost.project.yaml.batch_paths import (
    BatchPath,
    SettingLocation,
    call_with_paths,
    describe_value,
    parse_paths,
)
from roost.project.yaml.yaml_metrics import BatchMetric, DatasetMetric, is_dataset_metric
from roost.train.events import Value
from roost.train.reporting.media_files import Media
from roost.train.step.stepper import Stepper

_TARGETS = ["output", "batch.1"]
"""The default inputs of losses and metrics."""


@dataclass(frozen=True)
class SectionBuilder:
    """Builds the objects that a section names, for messages with their setting."""

    root: Path
    """The folder of the project's files."""
    where: Where

    def location(self, setting: str) -> SettingLocation:
        """Returns the location of a setting, for messages."""
        return SettingLocation(setting, self.where(setting) or self.where(f"{setting}.class"))

    def build(self, spec: Mapping[str, Any], setting: str) -> Any:
        """Returns the object of ``{class, **arguments}``."""
        return objects.build(spec, self.root, setting, self.where)

    def locate(self, path: str, setting: str) -> Any:
        """Returns the function or class that a setting names."""
        return objects.locate(path, root=self.root, setting=setting, where=self.where(setting))

    def build_callable(
        self,
        spec: ObjectSettings | LossSettings | MetricSettings,
        setting: str,
        inputs: int,
        *,
        inputs_setting: str | None = None,
    ) -> Any:
        """Returns a model, loss or metric after checking that it takes the number of inputs of
        ``inputs_setting``."""
        return objects.build_callable(
            spec_of(spec), self.root, setting, self.where, inputs=inputs, inputs_setting=inputs_setting
        )

    def locate_callable(self, path: str, setting: str, *, inputs: int) -> Any:
        """Returns the function that a setting names after checking that it takes so many inputs."""
        found = self.locate(path, setting)
        location = call_arguments.SpecLocation(setting, self.where)
        call_arguments.check_inputs(path, found, {}, inputs, location, setting)
        return found


def spec_of(section: ObjectSettings | LossSettings | MetricSettings) -> dict[str, Any]:
    """Returns ``{class, **arguments}``, the form that `roost.config.objects` takes."""
    return {"class": section.class_, **section.arguments}


# ---- Runner ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loss:
    name: str
    weight: float
    fn: Callable[..., Any]
    inputs: list[BatchPath]
    location: SettingLocation

    def value(self, values: Mapping[str, Any]) -> Tensor:
        """Returns the unweighted loss."""
        found = call_with_paths(self.fn, self.inputs, values, self.location)
        if not isinstance(found, Tensor) or found.dim():
            raise ContractError(
                "the loss is not a single number",
                setting=self.location.setting,
                received=describe_value(found),
                where=self.location.where,
                fix="return the mean over the batch: most classes of torch do with `reduction: mean`",
            )
        return found


class ConfiguredRunner(Runner):
    """The Runner of a section ``runner``: a model, its losses, its metrics.

    ```
    output = model(*inputs of the batch)
    loss   = sum of weight x loss(*inputs of batch and output)
    ```

    `runner_class` creates the class of a config. The model is ``self.model``; losses that are modules are in
    ``self.loss_modules``, so they are moved, saved and, if an optimizer takes their parameters, trained.
    """

    builder: ClassVar[SectionBuilder]
    section: ClassVar[RunnerSettings]

    def build(self) -> None:
        """Builds the model, then the losses and metrics, in the order of the config."""
        section, builder = self.section, self.builder
        self._inputs = parse_paths(section.inputs, ["batch.0"], builder.location("runner.inputs"))
        self.model = _module(section.model, builder, inputs=len(self._inputs))
        self._losses = [_loss(name, one, builder) for name, one in section.losses.items()]
        modules = {one.name: one.fn for one in self._losses if isinstance(one.fn, nn.Module)}
        self.loss_modules = nn.ModuleDict(modules)
        made = [_metric(name, one, builder) for name, one in section.metrics.items()]
        self._batch_metrics = [one for one in made if isinstance(one, BatchMetric)]
        self._dataset_metrics = [one for one in made if isinstance(one, DatasetMetric)]
        self._predicts = {
            name: BatchPath(text, builder.location(f"runner.predicts.{name}"))
            for name, text in section.predicts.items()
        }

    # ---- what the loop calls ----------------------------------------------------------------------------

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        """Returns the weighted sum of all losses, each loss by name if there are several, and the metrics of
        training."""
        return self._training_values(batch, self._losses, measures=True)

    def _training_values(self, batch: Any, losses: Sequence[_Loss], *, measures: bool) -> dict[str, Tensor]:
        values = self._values(batch)
        found = self._weighted(values, losses)
        if measures and self._batch_metrics:
            with torch.no_grad():
                for metric in self._batch_metrics:
                    if metric.in_training:
                        found.update({n: v.float().mean() for n, v in metric.values(values).items()})
        return found

    def _values(self, batch: Any) -> dict[str, Any]:
        inputs = {"batch": batch}
        output = self.model(*(part.value(inputs) for part in self._inputs))
        return {"batch": batch, "output": output, "model": self.model}

    def _weighted(self, values: Mapping[str, Any], losses: Sequence[_Loss]) -> dict[str, Tensor]:
        """Returns "loss", the weighted sum, first; then each loss unweighted."""
        each = {one.name: one.value(values) for one in losses}
        weighted = [each[one.name] if one.weight == 1 else one.weight * each[one.name] for one in losses]
        total = functools.reduce(torch.add, weighted)
        return {"loss": total, **(each if len(self._losses) > 1 else {})}

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        """Returns the losses as in training, the metrics of a batch, and the values from which `summarize`
        computes the metrics of a whole set."""
        values = self._values(batch)
        found = self._weighted(values, self._losses)
        for metric in self._batch_metrics:
            found.update(metric.values(values))
        for whole in self._dataset_metrics:
            found.update(whole.rows(values))
        return found

    def predict(self, batch: Any) -> Mapping[str, Any]:
        """Returns the paths of ``predicts``; the whole output if there are none."""
        values = self._values(batch)
        if self._predicts:
            return {name: part.value(values) for name, part in self._predicts.items()}
        output = values["output"]
        if isinstance(output, Mapping):
            return dict(output)
        if isinstance(output, list | tuple):
            return {f"output_{number}": one for number, one in enumerate(output)}
        return {"output": output}


def _module(section: ObjectSettings, builder: SectionBuilder, *, inputs: int) -> nn.Module:
    found = builder.build_callable(section, "runner.model", inputs, inputs_setting="runner.inputs")
    if not isinstance(found, nn.Module):
        raise ContractError(
            "is not a torch.nn.Module",
            setting="runner.model",
            received=section.class_,
            where=builder.where("runner.model.class"),
            fix="name a class derived from torch.nn.Module",
        )
    lazy = [name for name, one in found.named_parameters() if is_lazy(one)]
    if lazy:
        raise ContractError(
            f"{', '.join(lazy)} have no shape before the first batch, and the optimizers need it",
            setting="runner.model",
            where=builder.where("runner.model.class"),
            fix="give the sizes: Linear instead of LazyLinear, or pool to a fixed size before it",
        )
    return found


def _loss(name: str, section: LossSettings, builder: SectionBuilder) -> _Loss:
    setting = f"runner.losses.{name}"
    inputs = parse_paths(section.inputs, _TARGETS, builder.location(f"{setting}.inputs"))
    return _Loss(
        name,
        section.weight,
        builder.build_callable(section, setting, len(inputs)),
        inputs,
        builder.location(setting),
    )


def _is_whole(name: str, section: MetricSettings, builder: SectionBuilder) -> bool:
    return is_dataset_metric(builder.locate(section.class_, f"runner.metrics.{name}.class"))


def _metric(name: str, section: MetricSettings, builder: SectionBuilder) -> BatchMetric | DatasetMetric:
    setting = f"runner.metrics.{name}"
    inputs = parse_paths(section.inputs, _TARGETS, builder.location(f"{setting}.inputs"))
    if _is_whole(name, section, builder):
        if section.in_training:
            key = f"{setting}.in_training"
            raise ConfigError(
                f"{section.class_} is computed over a whole set, so it cannot be measured in a step",
                setting=key,
                received=True,
                where=builder.where(key),
                fix="leave it out, or write the metric as a function of a batch",
            )
        return DatasetMetric(
            name, builder.build(spec_of(section), setting), inputs, builder.location(setting)
        )
    fn = builder.build_callable(section, setting, len(inputs))
    return BatchMetric(name, fn, inputs, section.in_training is not False, builder.location(setting))


def runner_class(section: RunnerSettings, root: Path, where: Where) -> type[Runner]:
    """Returns the Runner class of a section. It overrides only the methods that the section needs, because an
    overridden `summarize` makes roost keep all values of a set.

    Raises:
        ConfigError: A class path is wrong.
    """
    builder = SectionBuilder(root, where)
    members: dict[str, Any] = {"section": section, "builder": builder}
    if any(_is_whole(name, one, builder) for name, one in section.metrics.items()):
        members["summarize"] = _summarize
    if section.visualize is not None:
        members["visualize"] = _visualize(
            builder.locate_callable(section.visualize, "runner.visualize", inputs=2)
        )
    if section.test is not None:
        members["test"] = _test(builder.locate_callable(section.test, "runner.test", inputs=2))
    if section.worst_cases:
        members["worst_cases"] = section.worst_cases
    if section.updates:
        members["update"] = _update
        last = [*section.updates][-1]
        for optimizer, names in section.updates.items():
            members[_method(optimizer)] = _loss_of(frozenset(names), measures=optimizer == last)
    return type("ConfiguredRunner", (ConfiguredRunner,), members)


def _summarize(self: ConfiguredRunner, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for whole in self._dataset_metrics:
        found.update(whole.result(values))
    return found


def _visualize(fn: Callable[[Any, Any], Mapping[str, Media]]) -> Callable[[Any, Any], Mapping[str, Media]]:
    def visualize(self: ConfiguredRunner, batch: Any) -> Mapping[str, Media]:
        return fn(self, batch)

    return visualize


def _test(fn: Callable[..., Mapping[str, Any]]) -> Callable[..., Mapping[str, Any]]:
    @functools.wraps(fn)  # with its signature: the arguments of variants are checked against it
    def test(self: ConfiguredRunner, batch: Any, **variant: Any) -> Mapping[str, Any]:
        return fn(self, batch, **variant)

    return test


def _method(optimizer: str) -> str:
    return f"loss_of_{optimizer}"


def _loss_of(names: frozenset[str], *, measures: bool) -> Callable[[Any, Any], Mapping[str, Tensor]]:
    """Returns a method with the losses of ``names``: the same function in each step, bound to each copy of
    the Runner."""

    def loss(self: ConfiguredRunner, batch: Any) -> Mapping[str, Tensor]:
        chosen = [one for one in self._losses if one.name in names]
        return self._training_values(batch, chosen, measures=measures)

    return loss


def _update(self: ConfiguredRunner, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    for optimizer in self.section.updates:
        values.update(stepper.run(getattr(self, _method(optimizer)), batches, optimizer=optimizer))
    return values


# ---- Dataset --------------------------------------------------------------------------------------------


class ConfiguredDataset(Dataset):
    """The Dataset of a section ``dataset``: sets by class path with arguments."""

    builder: ClassVar[SectionBuilder]
    section: ClassVar[DatasetSettings]

    def build(self) -> Data:
        """Builds the sets, in the order train, valid, test."""
        section = self.section
        return Data(
            train=self._sets("train", section.train),
            valid=self._sets("valid", section.valid),
            test=self._sets("test", section.test),
            collate=self._collate(section.collate, "dataset.collate"),
            info=section.info,
        )

    def _sets(self, split: str, given: Mapping[str, Any] | None) -> Any:
        setting = f"dataset.{split}"
        if given is None or "class" in given:
            return None if given is None else self._set(given, setting)
        return {name: self._set(one, f"{setting}.{name}") for name, one in given.items()}

    def _set(self, given: Mapping[str, Any], setting: str) -> Any:
        """Returns a set, with its ids and groups as attributes."""
        columns = set_columns.own_columns(given, self.builder.root)
        rest = {name: value for name, value in given.items() if name not in columns}
        made = self.builder.build(rest, setting)
        set_columns.attach(made, columns, self.builder.root, setting, self.builder.where)
        return made

    def _collate(self, given: Any, setting: str) -> Any:
        builder = self.builder
        if given is None:
            return None
        if isinstance(given, str):
            return builder.locate_callable(given, setting, inputs=1)
        if "class" in given:
            return objects.build_callable(
                given, builder.root, setting, builder.where, inputs=1, inputs_setting=setting
            )
        return {name: self._collate(one, f"{setting}.{name}") for name, one in given.items()}


def dataset_class(section: DatasetSettings, root: Path, where: Where) -> type[Dataset]:
    """Returns the Dataset class of a section."""
    members = {"section": section, "builder": SectionBuilder(root, where)}
    return type("ConfiguredDataset", (ConfiguredDataset,), members)
