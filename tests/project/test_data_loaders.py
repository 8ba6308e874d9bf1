from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

import roost
from roost.base.errors import ConfigError, ContractError
from roost.config.settings import Settings, parse_settings
from roost.project import data_loaders
from roost.project.batch_plans import build_plan
from roost.train.data.batch_function import Sampled
from roost.train.data.batches import Batches
from roost.train.data.external_loader import ExternalLoader
from roost.train.data.loader import Loader
from roost.train.data.stream import Stream
from roost.train.distributed.ranks import Ranks
from tests.messages import Messages

CPU = torch.device("cpu")


def settings(**data: Any) -> Settings:
    data = {"num_workers": 0, **data}
    return parse_settings({"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, "seed": 3, "data": data})


def place(key: str) -> str:
    return f"line of {key}"


def loaders(data: roost.Data, *, batches_per_step: int = 1, **asked: Any) -> dict[str, Batches]:
    return data_loaders.build_loaders(
        data, settings(**asked), device=CPU, batches_per_step=batches_per_step, where=place
    )


def one(train: Any, **asked: Any) -> Batches:
    return loaders(roost.Data(train=train), **asked)["train"]


def drawn(batches: Batches, count: int) -> list[Any]:
    with closing(batches.epochs()) as endless:
        return [batch.value for batch in islice(endless, count)]


class Numbers(IterableDataset[int]):
    """0, 1, 2, … without a length."""

    def __init__(self, end: int = 7) -> None:
        self.end = end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.end))


class Counted(Numbers):
    def __len__(self) -> int:
        return self.end


def half(state: Any, index: int, augment: bool) -> tuple[Any, int]:
    return torch.tensor([index, int(augment)]), index + 1


# ---- sets -----------------------------------------------------------------------------------------------


def test_the_sets_by_name() -> None:
    data = roost.Data(train={"a": [1], "b": None}, valid=[2], test={"x": [3], "y": [4]})
    assert data_loaders.named_sets(data) == {"train/a": [1], "valid": [2], "test/x": [3], "test/y": [4]}
    assert data_loaders.named_sets(roost.Data(train=[1])) == {"train": [1]}


@pytest.mark.parametrize(
    ("dataset", "kind"),
    [
        ([1], "indexed"),
        (torch.zeros(3), "indexed"),
        (TensorDataset(torch.zeros(3)), "indexed"),
        (Numbers(), "iterable"),
        (Counted(), "iterable"),
        ({1, 2}, "iterable"),
        (Sampled(half), "sampled"),
        (DataLoader([1]), "foreign"),  # type: ignore[arg-type]
        (3, None),
    ],
)
def test_kinds(dataset: Any, kind: str | None) -> None:
    assert data_loaders.set_kind(dataset) == kind


def test_sizes_in_words() -> None:
    assert (
        data_loaders.format_set_size(range(1000)) == "1,000"
        and data_loaders.format_set_size(Numbers()) == "Numbers"
    )


# ---- batches by index -----------------------------------------------------------------------------------


def test_each_set_gets_its_loader() -> None:
    data = roost.Data(train=range(40), valid={"a": range(4), "b": range(9)}, test=range(5))
    made = loaders(data, batch_size=4, valid={"batch_size": 3, "num_workers": 1}, limit_valid_batches=2)
    assert {name: (len(made[name]), made[name].num_workers) for name in made} == {
        "train": (10, 0),
        "valid/a": (2, 1),
        "valid/b": (2, 1),
        "test": (2, 0),
    }
    assert made["valid/a"].name.endswith(" a") and len({one.name for one in made.values()}) == 4
    assert sorted(torch.cat(drawn(made["train"], 10)).tolist()) == list(range(40))
    assert [batch.value.tolist() for batch in made["test"].once()] == [[0, 1, 2, 3], [4]]


def test_what_a_loader_is_told() -> None:
    made = one(range(4), num_workers="auto", prefetch=5, loader_timeout="2min")
    assert isinstance(made, Loader) and made.num_workers is None, "measured when batches are asked for"
    assert (made.prefetch, made.timeout_seconds, made.pin_memory) == (5, 120.0, False)
    (valid,) = [
        made
        for name, made in loaders(
            roost.Data(train=[1], valid=[1]), num_workers=2, valid={"num_workers": "auto"}
        ).items()
        if name == "valid"
    ]
    assert valid.num_workers is None and one([1], loader_timeout=7).timeout_seconds == 7.0  # type: ignore[attr-defined]


def test_an_evaluation_draws_a_training_set_as_it_stands() -> None:
    data = roost.Data(train=range(5))
    asked = settings(batch_size=2, limit_train_batches=1, steps_per_epoch=9)
    made = data_loaders.evaluation_loader(data, asked, "train", device=CPU)
    assert [batch.value.tolist() for batch in made.once()] == [[0, 1], [2, 3], [4]]
    several = roost.Data(train={"a": range(2), "b": [7]})
    made = data_loaders.evaluation_loader(several, asked, "train/b", device=CPU)
    assert [batch.value.tolist() for batch in made.once()] == [[7]] and made.name.endswith(" b")


def test_epochs_of_so_many_steps() -> None:
    made = one(range(8), batch_size=2, steps_per_epoch=5, batches_per_step=3)
    assert len(made) == 15


# ---- several sets ---------------------------------------------------------------------------------------

BOTH = roost.Data(
    train={"a": [torch.tensor(i) for i in range(6)], "b": [torch.tensor(i) for i in range(10, 14)]}
)


def test_a_batch_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    made = loaders(BOTH, batch_size=2)["train"]
    first, second = drawn(made, 2)
    assert first.keys() == {"a", "b"} and len(first["a"]) == 2
    assert sorted(torch.cat([first["b"], second["b"]]).tolist()) == [10, 11, 12, 13]
    said = "several training sets (a, b) and no data.mix: a batch of each at once"
    assert capsys.readouterr().out.startswith(said)
    assert len(made) == 2 and len(loaders(BOTH, batch_size=2, mix={"mode": "min_size"})["train"]) == 2
    assert not capsys.readouterr().out


def test_one_set_after_the_other_and_all_at_once() -> None:
    one_by_one = drawn(loaders(BOTH, batch_size=2, mix={"mode": "sequential"}, shuffle=False)["train"], 5)
    assert torch.cat(one_by_one).tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13]
    mix = {"mode": "weighted", "weights": {"a": 0, "b": 1}}
    assert min(torch.cat(drawn(loaders(BOTH, batch_size=2, mix=mix)["train"], 5)).tolist()) >= 10


def test_a_mix_of_one_set_is_none(messages: Messages) -> None:
    with pytest.raises(ConfigError, match="'sequential'") as refused:
        one([1, 2], mix={"mode": "sequential"})
    assert refused.value.setting == "data.mix"
    messages.check(refused.value)
    assert str(refused.value.where).startswith("line of data.mix")
    assert drawn(loaders(roost.Data(train={"a": [1]}), mix={})["train"], 1)[0].keys() == {"a"}


# ---- collate --------------------------------------------------------------------------------------------


def test_collate_by_split_and_by_name(messages: Messages) -> None:
    def of(name: str) -> Any:
        return lambda samples: (name, samples)

    data = roost.Data(
        train=[1],
        valid={"a": [2], "b": [3]},
        test=[4],
        collate={"train": of("train"), "valid": of("valid"), "valid/b": of("own")},
    )
    made = {name: next(batches.once()).value for name, batches in loaders(data).items()}
    assert made.pop("test").tolist() == [4]
    assert made == {"train": ("train", [1]), "valid/a": ("valid", [2]), "valid/b": ("own", [3])}
    assert data_loaders.collate_of(roost.Data(train=[1], collate=list), "test") is list
    with pytest.raises(ContractError, match=r"'val'.*'valid'") as refused:
        data_loaders.check_collate(roost.Data(train=[1], collate={"val": list}))
    messages.check(refused.value)


# ---- what has no indices --------------------------------------------------------------------------------


def test_an_iterable() -> None:
    made = one(Numbers(), batch_size=2, steps_per_epoch=3, batches_per_step=2, num_workers="auto")
    assert isinstance(made, Stream) and (len(made), made.num_workers) == (6, 0)
    assert [batch.tolist() for batch in drawn(made, 5)] == [[0, 1], [2, 3], [4, 5], [6], [0, 1]]
    assert len(one(Counted(), batch_size=2)) == 4 and len(one(Counted(), batch_size=2, drop_last=True)) == 3
    assert len(one(Numbers(), limit_train_batches=5)) == 5, "an epoch is what it is cut to"
    assert len(one(Counted(), batch_size=1, limit_train_batches=0.3)) == 2


def test_an_iterable_that_is_evaluated() -> None:
    data = roost.Data(train=[1], valid=Numbers(), test=Sampled(half))
    made = loaders(data, batch_size=3, limit_test_batches=2)
    assert [batch.value.tolist() for batch in made["valid"].once()] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [batch.value.tolist() for batch in made["test"].once()] == [[0, 0], [1, 0]]
    made = loaders(data, batch_size=3, limit_test_batches=2, limit_valid_batches=2)
    assert len(list(made["valid"].once())) == 2


def test_whole_batches_of_others() -> None:
    assert [batch.tolist() for batch in drawn(one(Sampled(half), steps_per_epoch=2), 2)] == [[0, 1], [1, 1]]
    made = one(DataLoader(list(range(6)), batch_size=4))  # type: ignore[arg-type]
    assert isinstance(made, ExternalLoader) and len(made) == 2
    assert [batch.tolist() for batch in drawn(made, 3)] == [[0, 1, 2, 3], [4, 5], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("train", "asked", "setting", "fact"),
    [
        (
            Numbers(),
            {},
            "data.steps_per_epoch",
            "(Numbers)",
        ),
        (Sampled(half), {}, "data.steps_per_epoch", "(Sampled)"),
        (
            Numbers(),
            {"limit_train_batches": 0.5},
            "data.limit_train_batches",
            "0.5 (at line of data.limit_train_batches)",
        ),
        (
            Counted(3),
            {"batch_size": 4, "drop_last": True},
            "data.batch_size",
            "4 (at line of data.batch_size)",
        ),
        (iter([1]), {"steps_per_epoch": 1}, None, "training set"),
    ],
)
def test_streams_that_do_not_fit(
    train: Any, asked: dict[str, Any], setting: str | None, fact: str, messages: Messages
) -> None:
    with pytest.raises((ConfigError, ContractError)) as caught:
        one(train, **asked)
    assert caught.value.setting == setting and fact in str(caught.value)
    messages.check(caught.value)


class Stateful(Counted):
    def state_dict(self) -> dict[str, int]:
        return {"end": self.end}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.end = state["end"]


def test_one_state_does_not_serve_two_splits(messages: Messages) -> None:
    for train in (Stateful(3), Sampled(half, Stateful(3), length=2)):
        with pytest.raises(ContractError, match=r" b .*\((Stateful|Sampled)") as refused:
            loaders(roost.Data(train=train, valid={"a": Counted(3), "b": train}))
        messages.check(refused.value)
    for harmless in (Counted(3), Sampled(half, {}, length=2), TensorDataset(torch.zeros(4, 1))):
        assert set(loaders(roost.Data(train=harmless, valid=harmless))) == {"train", "valid"}


@pytest.mark.parametrize(
    ("train", "asked", "ignored"),
    [
        (Counted(), {"batch_size": 2}, ""),
        (Counted(), {"weighted": True, "max_tokens": None}, "data.weighted"),
        (Counted(), {"sort_by_length": "ascending", "max_tokens": 9}, "data.sort_by_length, data.max_tokens"),
        (Sampled(half, length=3), {"batch_size": 2, "drop_last": True}, "data.batch_size, data.drop_last"),
        (DataLoader([1]), {}, ""),  # type: ignore[arg-type]
        (
            DataLoader([1]),  # type: ignore[arg-type]
            {"batch_size": 2, "shuffle": False, "num_workers": 2},
            "data.shuffle, data.batch_size, data.num_workers",
        ),
    ],
)
def test_what_does_nothing_is_said(
    train: Any, asked: dict[str, Any], ignored: str, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    one(train, **asked)
    said = capsys.readouterr().out
    assert said.startswith(f"warning: {ignored}: ") if ignored else not said
    if ignored:
        messages.check(said)


def test_limits_that_training_names_are_not_those_of_an_iterable(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    class Texts(list[int]):
        lengths = (1, 1, 1)

    made = loaders(roost.Data(train=Texts([1, 2, 3]), valid=Numbers()), max_tokens=2)
    assert [len(batch.value) for batch in made["valid"].once()] == [7]
    said = capsys.readouterr().out
    assert said.startswith("warning: data.max_tokens: ") and "validation" in said
    messages.check(said)
    assert (
        made["train"].describe()
        == build_plan(Texts([1, 2, 3]), settings(max_tokens=2), training=True).describe()
    )


def test_a_loader_that_shares_out_by_itself(messages: Messages) -> None:
    data = TensorDataset(torch.zeros(8, 2))
    shared = DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0))
    with pytest.raises(ContractError, match=r"DistributedSampler.* 2 ") as refused:
        one(shared)
    messages.check(refused.value)
    one(DataLoader(data, sampler=DistributedSampler(data, num_replicas=1, rank=0)))


def test_each_rank_has_its_share_of_what_has_indices() -> None:
    data = roost.Data(train=TensorDataset(torch.arange(8)))
    shares = [
        data_loaders.build_loaders(
            data, settings(batch_size=3, shuffle=False), device=CPU, ranks=Ranks(rank, 2)
        )["train"]
        for rank in range(2)
    ]
    assert [[batch.tolist() for [batch] in drawn(share, 2)] for share in shares] == [
        [[0, 1], [3, 4]],
        [[2], [5]],
    ]
