"""A Runner and a Dataset that a config describes, with no class of the project's own."""

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
from roost.project.yaml.batch_paths import Part, Place, called, described, parts
from roost.project.yaml.yaml_metrics import Measured, WholeMetric, is_of_whole_set
from roost.train.events import Value
from roost.train.reporting.media_files import Media
from roost.train.step.stepper import Stepper

_TARGETS = ["output", "batch.1"]
"""What losses and metrics are called with where they do not say."""


@dataclass(frozen=True)
class Described:
    """What a class of ours is made from."""

    root: Path
    """Where the project's files are."""
    where: Where

    def place(self, setting: str) -> Place:
        """Of a setting, for messages."""
        return Place(setting, self.where(setting) or self.where(f"{setting}.class"))

    def built(self, spec: Mapping[str, Any], setting: str) -> Any:
        """The object of ``{class, **arguments}``."""
        return objects.build(spec, self.root, setting, self.where)

    def located(self, path: str, setting: str) -> Any:
        """The function that a setting names."""
        return objects.locate(path, root=self.root, setting=setting, where=self.where(setting))

    def to_call(
        self,
        spec: ObjectSettings | LossSettings | MetricSettings,
        setting: str,
        inputs: int,
        *,
        inputs_setting: str | None = None,
    ) -> Any:
        """A model, loss or metric, to be called with so many inputs, as the setting ``inputs_setting`` says."""
        return objects.build_callable(
            spec_of(spec), self.root, setting, self.where, inputs=inputs, inputs_setting=inputs_setting
        )

    def to_call_with(self, path: str, setting: str, *, inputs: int) -> Any:
        """The function that a setting names, to be called with so many inputs."""
        found = self.located(path, setting)
        place = call_arguments.SpecLocation(setting, self.where)
        call_arguments.check_inputs(path, found, {}, inputs, place, setting)
        return found


def spec_of(asked: ObjectSettings | LossSettings | MetricSettings) -> dict[str, Any]:
    """``{class, **arguments}``, as `roost.config.objects` takes it."""
    return {"class": asked.class_, **asked.arguments}


# ---- Runner ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loss:
    name: str
    weight: float
    fn: Callable[..., Any]
    inputs: list[Part]
    place: Place

    def of(self, values: Mapping[str, Any]) -> Tensor:
        """Its value, unweighted."""
        found = called(self.fn, self.inputs, values, self.place)
        if not isinstance(found, Tensor) or found.dim():
            raise ContractError(
                "the loss is no single number",
                setting=self.place.setting,
                received=described(found),
                where=self.place.where,
                fix="give the mean over the batch: most classes of torch do with `reduction: mean`",
            )
        return found


class ConfiguredRunner(Runner):
    """``runner`` as a section: a model, its losses, its metrics.

    ```
    output = model(*inputs of the batch)
    loss   = sum of weight x loss(*inputs of batch and output)
    ```

    `runner_class` makes the class of a config. The model is ``self.model``; losses that are modules are in
    ``self.loss_modules``, so they are moved, saved and, if an optimizer takes their parameters, trained.
    """

    described: ClassVar[Described]
    asked: ClassVar[RunnerSettings]

    def build(self) -> None:
        """The model first, then the losses and metrics, in the order of the config."""
        asked, of = self.asked, self.described
        self._inputs = parts(asked.inputs, ["batch.0"], of.place("runner.inputs"))
        self.model = _module(asked.model, of, inputs=len(self._inputs))
        self._losses = [_loss(name, one, of) for name, one in asked.losses.items()]
        modules = {one.name: one.fn for one in self._losses if isinstance(one.fn, nn.Module)}
        self.loss_modules = nn.ModuleDict(modules)
        made = [_metric(name, one, of) for name, one in asked.metrics.items()]
        self._measured = [one for one in made if isinstance(one, Measured)]
        self._whole = [one for one in made if isinstance(one, WholeMetric)]
        self._predicts = {
            name: Part(text, of.place(f"runner.predicts.{name}")) for name, text in asked.predicts.items()
        }

    # ---- what the loop calls ----------------------------------------------------------------------------

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        """The weighted sum of all losses; each by its name, if there are several, and what is measured in
        training."""
        return self._trained(batch, self._losses, measures=True)

    def _trained(self, batch: Any, losses: Sequence[_Loss], *, measures: bool) -> dict[str, Tensor]:
        values = self._values(batch)
        found = self._weighted(values, losses)
        if measures and self._measured:
            with torch.no_grad():
                for metric in self._measured:
                    if metric.in_training:
                        found.update({n: v.float().mean() for n, v in metric.of(values).items()})
        return found

    def _values(self, batch: Any) -> dict[str, Any]:
        inputs = {"batch": batch}
        output = self.model(*(part.of(inputs) for part in self._inputs))
        return {"batch": batch, "output": output, "model": self.model}

    def _weighted(self, values: Mapping[str, Any], losses: Sequence[_Loss]) -> dict[str, Tensor]:
        """ "loss" first; the others unweighted."""
        each = {one.name: one.of(values) for one in losses}
        weighted = [each[one.name] if one.weight == 1 else one.weight * each[one.name] for one in losses]
        total = functools.reduce(torch.add, weighted)
        return {"loss": total, **(each if len(self._losses) > 1 else {})}

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        """The losses as in training, the functions among the metrics, and what the others are computed from
        in `summarize`."""
        values = self._values(batch)
        found = self._weighted(values, self._losses)
        for metric in self._measured:
            found.update(metric.of(values))
        for whole in self._whole:
            found.update(whole.rows(values))
        return found

    def predict(self, batch: Any) -> Mapping[str, Any]:
        """The parts that ``predicts`` names; all of the output if it names none."""
        values = self._values(batch)
        if self._predicts:
            return {name: part.of(values) for name, part in self._predicts.items()}
        output = values["output"]
        if isinstance(output, Mapping):
            return dict(output)
        if isinstance(output, list | tuple):
            return {f"output_{number}": one for number, one in enumerate(output)}
        return {"output": output}


def _module(asked: ObjectSettings, of: Described, *, inputs: int) -> nn.Module:
    found = of.to_call(asked, "runner.model", inputs, inputs_setting="runner.inputs")
    if not isinstance(found, nn.Module):
        raise ContractError(
            "is no torch.nn.Module",
            setting="runner.model",
            received=asked.class_,
            where=of.where("runner.model.class"),
            fix="name a class that derives from it",
        )
    lazy = [name for name, one in found.named_parameters() if is_lazy(one)]
    if lazy:
        raise ContractError(
            f"{', '.join(lazy)} have no shape before the first batch, and the optimizers are made before it",
            setting="runner.model",
            where=of.where("runner.model.class"),
            fix="give the sizes: Linear in place of LazyLinear, or pool to a fixed size before it",
        )
    return found


def _loss(name: str, asked: LossSettings, of: Described) -> _Loss:
    setting = f"runner.losses.{name}"
    inputs = parts(asked.inputs, _TARGETS, of.place(f"{setting}.inputs"))
    return _Loss(name, asked.weight, of.to_call(asked, setting, len(inputs)), inputs, of.place(setting))


def _is_whole(name: str, asked: MetricSettings, of: Described) -> bool:
    return is_of_whole_set(of.located(asked.class_, f"runner.metrics.{name}.class"))


def _metric(name: str, asked: MetricSettings, of: Described) -> Measured | WholeMetric:
    setting = f"runner.metrics.{name}"
    inputs = parts(asked.inputs, _TARGETS, of.place(f"{setting}.inputs"))
    if _is_whole(name, asked, of):
        if asked.in_training:
            key = f"{setting}.in_training"
            raise ConfigError(
                f"{asked.class_} is computed over a whole set, so it cannot be measured in a step",
                setting=key,
                received=True,
                where=of.where(key),
                fix="leave it out, or write the metric as a function of a batch",
            )
        return WholeMetric(name, of.built(spec_of(asked), setting), inputs, of.place(setting))
    fn = of.to_call(asked, setting, len(inputs))
    return Measured(name, fn, inputs, asked.in_training is not False, of.place(setting))


def runner_class(asked: RunnerSettings, root: Path, where: Where) -> type[Runner]:
    """The class of a Runner that a section describes. It overrides only what the section asks for, because
    roost looks at that: a `summarize` keeps all values of a set.

    Raises:
        ConfigError: A class path is wrong.
    """
    of = Described(root, where)
    members: dict[str, Any] = {"asked": asked, "described": of}
    if any(_is_whole(name, one, of) for name, one in asked.metrics.items()):
        members["summarize"] = _summarize
    if asked.visualize is not None:
        members["visualize"] = _visualize(of.to_call_with(asked.visualize, "runner.visualize", inputs=2))
    if asked.updates:
        members["update"] = _update
        last = [*asked.updates][-1]
        for optimizer, names in asked.updates.items():
            members[_method(optimizer)] = _loss_of(frozenset(names), measures=optimizer == last)
    return type("ConfiguredRunner", (ConfiguredRunner,), members)


def _summarize(self: ConfiguredRunner, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for whole in self._whole:
        found.update(whole.result(values))
    return found


def _visualize(fn: Callable[[Any, Any], Mapping[str, Media]]) -> Callable[[Any, Any], Mapping[str, Media]]:
    def visualize(self: ConfiguredRunner, batch: Any) -> Mapping[str, Media]:
        return fn(self, batch)

    return visualize


def _method(optimizer: str) -> str:
    return f"loss_of_{optimizer}"


def _loss_of(names: frozenset[str], *, measures: bool) -> Callable[[Any, Any], Mapping[str, Tensor]]:
    """A method, so that it is the same one in each step, and a copy of the Runner has its own."""

    def loss(self: ConfiguredRunner, batch: Any) -> Mapping[str, Tensor]:
        chosen = [one for one in self._losses if one.name in names]
        return self._trained(batch, chosen, measures=measures)

    return loss


def _update(self: ConfiguredRunner, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    for optimizer in self.asked.updates:
        values.update(stepper.run(getattr(self, _method(optimizer)), batches, optimizer=optimizer))
    return values


# ---- Dataset --------------------------------------------------------------------------------------------


class ConfiguredDataset(Dataset):
    """``dataset`` as a section: sets by class path with arguments."""

    described: ClassVar[Described]
    asked: ClassVar[DatasetSettings]

    def build(self) -> Data:
        """The sets, in the order train, valid, test."""
        asked = self.asked
        return Data(
            train=self._sets("train", asked.train),
            valid=self._sets("valid", asked.valid),
            test=self._sets("test", asked.test),
            collate=self._collate(asked.collate, "dataset.collate"),
            info=asked.info,
        )

    def _sets(self, split: str, given: Mapping[str, Any] | None) -> Any:
        setting = f"dataset.{split}"
        if given is None or "class" in given:
            return None if given is None else self.described.built(given, setting)
        return {name: self.described.built(one, f"{setting}.{name}") for name, one in given.items()}

    def _collate(self, given: Any, setting: str) -> Any:
        of = self.described
        if given is None:
            return None
        if isinstance(given, str):
            return of.to_call_with(given, setting, inputs=1)
        if "class" in given:
            return objects.build_callable(given, of.root, setting, of.where, inputs=1, inputs_setting=setting)
        return {name: self._collate(one, f"{setting}.{name}") for name, one in given.items()}


def dataset_class(asked: DatasetSettings, root: Path, where: Where) -> type[Dataset]:
    """The class of a Dataset that a section describes."""
    members = {"asked": asked, "described": Described(root, where)}
    return type("ConfiguredDataset", (ConfiguredDataset,), members)
