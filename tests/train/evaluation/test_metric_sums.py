from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

import roost
from roost.base.errors import ConfigError, ContractError, PeerLost
from roost.train.data.batches import Batches, Interrupted
from roost.train.data.stream import Stream
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.evaluation import metric_sums, split_evaluation
from roost.train.evaluation.metric_sums import MetricSums
from tests.messages import Messages
from tests.train.parts import Still, loader
from tests.train.team import team


class Measures(roost.Runner):
    """Whose sums depend on the order in which they are added, and on which batches are joined."""

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        found = {"each": x[:, 0] * 1e7, "mean": x.mean(), "hits": y == 1, "id": y, "all": x}
        # In some batches only: in the last of 7, and in those whose first label is 0.
        return {**({"short": x[:, 1]} if len(x) < 4 else {}), **found, **({} if y[0] else {"zero": x[:, 2]})}


class Sums(Measures):
    """Keeps what it is given to summarize."""

    def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
        self.given = {name: tensor.tolist() for name, tensor in values.items()}
        return {"rows": len(values["all"])}


class Flow(IterableDataset[Any]):
    """The same samples, without indices."""

    def __iter__(self) -> Iterator[Any]:
        still = Still()
        return (still[index] for index in range(len(still)))


def collate(samples: list[Any]) -> Any:
    """Nothing of the first two batches of 4, and of the one in the middle."""
    first = samples[0][0].tolist()
    return None if first in Still().x[[0, 4, 12]].tolist() else default_collate(samples)


SETS: Mapping[str, Any] = {
    "indexed": lambda: loader(Still(), 4, shuffle=False),
    "with workers": lambda: loader(Still(), 4, shuffle=False, num_workers=2),
    "with empty batches": lambda: loader(Still(), 4, shuffle=False, collate=collate),
    "fewer batches than ranks": lambda: loader(Still(5), 4, shuffle=False),
    "a stream": lambda: Stream(Flow(), batch_size=4, num_batches=7),
    "a stream with empty batches": lambda: Stream(Flow(), batch_size=4, num_batches=7, collate=collate),
}


def measure(ranks: Ranks, kind: type[Measures] = Sums) -> dict[str, Any]:
    """Of each set the results, as bits, and what was summarized."""
    found: dict[str, Any] = {}
    for name, make in SETS.items():
        runner, made = kind(), make()
        results = split_evaluation.evaluate_split(runner, made, "valid", ranks=ranks)
        made.close()
        found[name] = [(key, struct.pack("d", value)) for key, value in results.items()], runner.given
    return found


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_measure_what_one_process_does_bit_for_bit(world: int) -> None:
    """Values, their order, and what `summarize` gets; on each rank."""
    alone = measure(ALONE)
    assert [name for name, _ in alone["indexed"][0]] == ["each", "mean", "hits", "zero", "short", "rows"]
    for of_rank in team(world, measure):
        assert of_rank == alone


class Reads(Still):
    """Notes what is read."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        assert self.reads is not None
        self.reads.append(index)
        return super().__getitem__(index)


def test_a_rank_reads_its_own_batches_alone() -> None:
    def reads(ranks: Ranks) -> list[int]:
        found: list[int] = []
        split_evaluation.evaluate_split(
            Measures(), loader(Reads(reads=found), 2, shuffle=False), "valid", ranks=ranks
        )
        return found

    first, second = team(2, reads)
    assert first == [index for index in range(26) if index // 2 % 2 == 0]
    # It has one batch less, and computes the last one of all together with the other.
    assert second == [*(index for index in range(26) if index // 2 % 2 == 1), 24, 25]


class Talks(Measures):
    """Talks to the other ranks in each batch, as a sharded model does."""

    calls = 0

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        self.calls += 1
        assert set(self.all_gather(torch.tensor(self.calls)).tolist()) == {self.calls}
        return super().evaluate(batch)


def test_evaluate_is_called_equally_often_on_all_ranks() -> None:
    def calls(ranks: Ranks) -> list[int]:
        found = []
        for make in SETS.values():
            runner, made = Talks(), make()
            split_evaluation.evaluate_split(runner, made, "valid", ranks=ranks)
            made.close()
            found.append(runner.calls)
        return found

    # Of 7 batches; 3 in the sets of 7 with empty ones at the places 0, 1 and 3 are all empty in no turn of 3.
    assert team(3, calls) == [[3, 3, 3, 1, 3, 3]] * 3


def raised(ranks: Ranks, made: Batches, runner: roost.Runner, **options: Any) -> str:
    """What an evaluation raises; afterwards the ranks can go on."""
    with pytest.raises((ContractError, ConfigError, PeerLost, Interrupted, ZeroDivisionError)) as found:
        split_evaluation.evaluate_split(runner, made, "valid", ranks=ranks, **options)
    assert ranks.control.gather(1, "the end") == [1] * ranks.world_size
    return f"{type(found.value).__name__}: {found.value}"


class Fails(Measures):
    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        return {"x": batch[0][:1, 0]} if self.fails and len(batch[0]) < 4 else super().evaluate(batch)


class Unreadable(Still):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        assert index != 5, 1 / 0
        return super().__getitem__(index)


def of_one(ranks: Ranks) -> Any:
    """A collate that finds samples on rank 0 alone."""
    return default_collate if ranks.is_main else lambda samples: None


class Uneven(Sums):
    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        return {"scores": batch[0][:, : len(batch[0])]}


def test_what_one_rank_raises_ends_it_for_all(messages: Messages) -> None:
    def errors(ranks: Ranks) -> list[str]:
        stops = iter([False, False, ranks.rank == 1, False])
        sets = [loader(one, 4, shuffle=False) for one in (Still(), Unreadable(), Still(), Still(), Still())]
        nothing = loader(Still(), 4, shuffle=False, collate=lambda samples: None)
        return [
            raised(ranks, sets[0], Fails(ranks.is_main)),
            raised(ranks, sets[1], Measures()),
            raised(ranks, sets[2], Measures(), stop=lambda: next(stops)),
            raised(ranks, loader(Still(8 + 8 * ranks.rank), 4, shuffle=False), Measures()),
            raised(ranks, nothing, Measures()),
            raised(ranks, sets[3], Uneven()),
            raised(ranks, Stream(Flow(), batch_size=4, num_batches=7, collate=of_one(ranks)), Measures()),
        ]

    first, second = team(2, errors)
    assert re.search(r"^ContractError: x: .*evaluate\(\).*\b1\b.*\b2\b", first[0])
    assert second[0].startswith("PeerLost: ") and "rank 0" in second[0]
    messages.check(second[0])
    assert (first[1], second[1]) == (
        second[0].replace("rank 0", "rank 1"),
        "ZeroDivisionError: division by zero",
    )
    assert first[2] == second[2] == "Interrupted: "
    assert first[3] == second[3]
    assert re.search(r"^ContractError: .*\bvalid\b.*rank 0\b.*rank 1\b", first[3])
    assert first[4] == second[4] and first[4].startswith("ConfigError: ") and "valid" in first[4]
    assert first[5] == second[5]
    assert re.search(r"^ContractError: .*'scores'.*\(4,\).*\(2,\)", first[5])
    for error in (first[0], first[3], first[4], first[5]):
        messages.check(error)


def test_a_look_ahead_fails_on_all_ranks_when_it_fails_on_one() -> None:
    def errors(ranks: Ranks) -> str:
        made = loader(Still(2), 4, shuffle=False)
        with pytest.raises((ContractError, PeerLost)) as found:
            split_evaluation.probe_metrics(Fails(ranks.is_main), made, ranks=ranks)
        assert split_evaluation.probe_metrics(Measures(), made, ranks=ranks)[1] == ["all"]
        return type(found.value).__name__

    assert team(2, errors) == ["ContractError", "PeerLost"]


def test_many_batches_are_folded_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def totals(fold: int) -> Any:
        monkeypatch.setattr(metric_sums, "_FOLD_BATCHES", fold)
        found = MetricSums(keeps_values=False)
        for number in range(10):
            found.add(number, {"x": torch.tensor([0.1 * number, 0.7])}, 2)
        return found.totals()

    assert totals(3) == totals(1024)
    assert len(totals(3)["x"][2]) == 10
