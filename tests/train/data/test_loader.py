from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from roost.base.errors import ContractError
from roost.train.data.batches import Batch
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.dataset_mixes import CombinedPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.stream import Stream
from roost.train.step import seeding
from tests.messages import Messages
from tests.train.data.pools import gone, linux, pids
from tests.train.data.samples import Broken, Draws, Odd, Rows, WithGenerator
from tests.train.parts import MLP, Pictures, Points, Recipe, Still, StopAt, bits, built, loader, plain
from tests.waiting import wait_for


def take(batches: Iterator[Batch], number: int) -> list[Batch]:
    """The first batches, everything closed afterwards."""
    with closing(batches):  # type: ignore[type-var]
        return list(itertools.islice(batches, number))


@pytest.mark.parametrize("kind", [Points, Pictures, WithGenerator, Still])
def test_two_workers_give_the_bits_of_none(kind: type[Points]) -> None:
    """Over an epoch's edge, from any position."""
    for start in ((0, 0), (1, 5)):
        inline = take(loader(kind()).epochs(*start), 9)
        forked = take(loader(kind(), num_workers=2).epochs(*start), 9)
        assert bits([tuple(batch) for batch in inline]) == bits([tuple(batch) for batch in forked])


@pytest.mark.parametrize("kind", [Points, Pictures, WithGenerator])
def test_augmentation_differs_by_epoch_and_repeats_itself(kind: type[Points]) -> None:
    plan = BatchPlan(4, 4, shuffle=False)
    first, second = take(Loader(kind(4), plan=plan, seed=3).epochs(), 2)
    again = take(Loader(kind(4), plan=plan, seed=3).epochs(1), 1)[0]
    other = take(Loader(kind(4), plan=plan, seed=4).epochs(1), 1)[0]
    assert not torch.equal(first.value[0], second.value[0])
    assert torch.equal(again.value[0], second.value[0])
    assert not torch.equal(other.value[0], second.value[0])
    # Each sample has its own draw: not one shift for the batch.
    still = Still(4).x
    assert len({round(float(x), 4) for x in (first.value[0].reshape(4, -1)[:, :6] - still)[:, 0]}) == 4


def test_what_a_sample_draws_does_not_depend_on_its_neighbours() -> None:
    """Neither on the batch it is in: another batch size gives the same samples."""
    data = Points()
    one = Loader(data, plan=BatchPlan(len(data), 1, shuffle=False), seed=3)
    all_at_once = Loader(data, plan=BatchPlan(len(data), len(data), shuffle=False), seed=3)
    rows = torch.cat([batch.value[0] for batch in take(one.epochs(), len(data))])
    assert torch.equal(rows, take(all_at_once.epochs(), 1)[0].value[0])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_last_and_sizes(num_workers: int) -> None:
    batches = take(loader(Points(), num_workers=num_workers).epochs(0, 5), 4)
    assert [(batch.num_samples, batch.ends_epoch) for batch in batches] == [
        (4, False),
        (2, True),
        (4, False),
        (4, False),
    ]
    assert [len(batch.value[0]) for batch in batches] == [4, 2, 4, 4]
    once = list(loader(Points(), num_workers=num_workers, shuffle=False).once())
    assert [batch.num_samples for batch in once] == [4] * 6 + [2]
    assert torch.equal(torch.cat([batch.value[1] for batch in once]), Points().y)


def test_a_pass_for_evaluation_is_always_the_same() -> None:
    evaluating = loader(Points(), shuffle=False)
    assert bits([b.value for b in evaluating.once()]) == bits([b.value for b in evaluating.once()])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [Points, Still])
def test_fetching_leaves_the_generators_of_training_alone(kind: type[Points], num_workers: int) -> None:
    seeding.seed_all(1)
    before = bits(seeding.rng_state())
    take(loader(kind(), num_workers=num_workers).epochs(), 3)
    assert bits(seeding.rng_state()) == before


def test_own_collate() -> None:
    batch = take(loader(Still(), collate=lambda samples: len(samples), num_workers=2).epochs(), 1)[0]
    assert batch.value == 4


# --- what the dataset does wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sample_that_raises_names_itself(num_workers: int) -> None:
    with pytest.raises(ValueError, match="cannot decode") as caught:
        take(loader(Broken(), num_workers=num_workers).epochs(), 7)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "sample 7 of Broken" in text


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", ["none", "shapes", "keys", "kinds", "lengths", "objects"])
def test_samples_that_cannot_be_joined(kind: str, num_workers: int) -> None:
    with pytest.raises(ContractError, match=r"\bOdd \(") as caught:
        take(loader(Odd(kind), num_workers=num_workers).epochs(), 1)
    assert caught.value.fix
    assert "\n" not in str(caught.value), "one clear line, also from a worker process"


def test_a_set_that_opens_its_file_lazily_is_not_opened_before_the_workers_are(tmp_path: Path) -> None:
    """They would share one file offset, and read each other's rows without an error."""
    file = tmp_path / "rows"
    file.write_text("".join(f"{number:8}" for number in range(2000)))
    rows = Rows(file)
    reader = loader(rows, 20, shuffle=False, num_workers=2)
    before = bits(seeding.rng_state())
    assert not reader.inexact_reasons()
    assert rows.fd == -1 and bits(seeding.rng_state()) == before
    assert torch.cat([batch.value for batch in reader.once()]).tolist() == list(range(2000))


def test_without_workers_it_is_looked_at_here() -> None:
    assert loader(Draws("unseeded")).inexact_reasons()
    assert not loader(Draws("seeded")).inexact_reasons()
    assert not loader(Still(), num_workers=2).inexact_reasons()


# --- processes and resume ---------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [1, 9])
def test_workers_are_gone_after_closing(taken: int) -> None:
    batches = loader(Points(), num_workers=2).epochs()
    for _ in range(taken):
        next(batches)
    workers = pids()
    assert len(workers) == 2, "the same two for all epochs"
    batches.close()  # type: ignore[attr-defined]
    wait_for(lambda: all(map(gone, workers)))


def test_workers_are_gone_after_a_failure_in_training() -> None:
    class Fails(MLP):
        def loss(self, batch: Any) -> Any:
            workers.extend(pids())
            raise KeyError

    workers: list[int] = []
    trainer = plain(built(Fails), Points(), loaders={"train": loader(Points(), num_workers=2)})
    with pytest.raises(KeyError):
        trainer.fit()
    assert len(workers) == 2
    wait_for(lambda: all(map(gone, workers)))


STUCK = """
import os, sys, time
import torch
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan

class Stuck:
    draws_randomness = False
    def __len__(self):
        return 8
    def __getitem__(self, index):
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(1000)

next(Loader(Stuck(), plan=BatchPlan(8, 1), num_workers=2).epochs())
"""


@linux
def test_workers_die_with_a_killed_training_even_while_they_read() -> None:
    """They hold the package's lock: `continue` must find it free."""
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        workers = [int(training.stdout.readline()) for _ in range(2)]
        assert not any(map(gone, workers))
        training.kill()

    wait_for(lambda: all(map(gone, workers)))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_memory_is_pinned_only_on_demand(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning opens a CUDA context, which training on a CPU has no use for."""
    seen = []

    def pin_memory(self: Tensor) -> Tensor:
        seen.append(self.shape)
        return self.clone()

    monkeypatch.setattr(Tensor, "pin_memory", pin_memory)
    expected = take(loader(Still(), num_workers=num_workers).epochs(), 1)[0]
    assert not seen
    pinned = take(loader(Still(), num_workers=num_workers, pin_memory=True).epochs(), 1)[0]
    # A thread may have pinned the next batch, too.
    assert seen[:2] == [(4, 6), (4,)][: 2 * num_workers] and len(seen) <= 4 * num_workers
    assert bits(pinned.value) == bits(expected.value)


# --- several at once, and closing -------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_several_iterations_at_once(num_workers: int) -> None:
    reader = loader(Points(), num_workers=num_workers)
    pairs = list(itertools.islice(zip(reader.epochs(), reader.epochs(1), strict=False), 5))
    assert bits([one.value for one, _ in pairs]) == bits([b.value for b in take(reader.epochs(), 5)])
    assert bits([other.value for _, other in pairs]) == bits([b.value for b in take(reader.epochs(1), 5)])
    reader.close()
    assert not pids()


def test_workers_stay_from_one_pass_to_the_next_and_begin_again_after_closing() -> None:
    reader = loader(Still(), shuffle=False, num_workers=2)
    first = bits([b.value for b in reader.once()])
    workers = pids()
    assert bits([b.value for b in reader.once()]) == first and pids() == workers and len(workers) == 2
    reader.close()
    reader.close()
    assert not pids()
    assert bits([b.value for b in reader.once()]) == first and len(pids()) == 2
    reader.close()


# --- no room ----------------------------------------------------------------------------------------------


class Large(Still):
    """Samples of 40 MB from the fifth batch on."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        size = 10_000_000 if index >= 16 else 10
        return torch.full((size,), index, dtype=torch.float32), self.y[index]


def test_a_batch_that_does_not_fit_is_read_in_the_training_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(reader: Loader) -> list[Any]:
        return [(one.num_samples, one.ends_epoch, one.value[0][:, -1].tolist()) for one in reader.once()]

    monkeypatch.setattr("roost.train.data.workers.shared_memory.available_bytes", lambda: 50_000_000)
    reader = loader(Large(), shuffle=False, num_workers=2, name="the training set")
    found, said = read(reader), capsys.readouterr().out
    assert "160,000," in said and "50,000,000 bytes" in said and "the training set" in said
    assert said.count("\n") == 1
    assert reader.num_workers == 0 and not pids()
    assert found == read(loader(Large(), shuffle=False))


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[x] DefaultCPUAllocator: can't allocate memory")]
)
def test_a_batch_that_fits_nowhere(error: Exception, messages: Messages) -> None:
    class Huge(Still):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            raise error

    with pytest.raises(type(error)) as caught:
        take(loader(Huge()).epochs(), 1)
    (note,) = [note for note in caught.value.__notes__ if "data.batch_size" in note]
    assert "4 samples" in note
    messages.check(note)


# --- a set whose length changes ---------------------------------------------------------------------------


class Listed(Dataset[int]):
    def __init__(self, length: int) -> None:
        self.samples = list(range(length))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> int:
        return self.samples[index]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_set_that_shrinks_is_reported_at_the_next_epoch(num_workers: int) -> None:
    dataset = Listed(1000)
    reader = loader(dataset, 100, num_workers=num_workers, name="the training set")
    batches = reader.epochs()
    assert len(list(itertools.islice(batches, 10))) == 10
    del dataset.samples[900:]
    with pytest.raises(ContractError, match=r"the training set .*1,000 .*900 "):
        next(batches)
    with pytest.raises(ContractError, match=r"the training set .*1,000 .*900 "):
        next(reader.once())
    assert not pids()


def test_a_set_that_shrinks_in_the_middle_of_an_epoch() -> None:
    dataset = Listed(1000)
    batches = loader(dataset, 100, shuffle=False).epochs()
    next(batches)
    del dataset.samples[150:]
    with pytest.raises(ContractError, match=r"sample 150 in Listed, .*150; .*1,000 "):
        next(batches)


@pytest.mark.parametrize("length", [1000, 990])
def test_a_resume_with_another_length_is_inexact(length: int) -> None:
    saved = loader(Listed(1000), name="the training set").state_dict()
    assert json.loads(json.dumps(saved)) == saved
    reader = loader(Listed(length), name="the training set")
    reader.load_state_dict({})
    assert reader.inexact_reasons() == []
    reader.load_state_dict(saved)
    inexact = reader.inexact_reasons()
    assert len(inexact) == (length != 1000)
    assert all("the training set" in why and "990" in why and "1,000" in why for why in inexact)


def reads_before_the_first_step(done: int, folder: Any) -> int:
    """Samples that a session reads before its first step when it goes on after ``done`` of 100 batches."""
    reads: list[int] = []
    counts: list[int] = []

    class Counts(MLP):
        def loss(self, batch: Any) -> Any:
            counts.append(len(reads))
            return super().loss(batch)

    recipe = Recipe(
        runner=Counts, dataset=lambda: Points(400, reads=reads), save="50", validate="1000", until="1ep"
    )
    recipe.make(folder, StopAt(done)).fit()
    reads.clear()
    counts.clear()
    recipe.make(folder, StopAt(done + 1)).fit()
    return counts[0]


@pytest.mark.soak
def test_a_resume_reads_nothing_again(tmp_path: Any) -> None:
    early, late = (reads_before_the_first_step(done, tmp_path / str(done)) for done in (10, 90))
    # One sample twice, to see whether it is seeded; the batch; and what tries the validation out.
    assert late == early < 20


@pytest.mark.parametrize("nothing", [None, [], {}, (), torch.zeros(0, 3)])
def test_a_collate_that_finds_nothing_gives_an_empty_batch(nothing: Any) -> None:
    (batch,) = take(loader(Still(), collate=lambda samples: nothing).epochs(), 1)
    assert batch == Batch(None, 0, False)


def test_of_several_sets_only_the_parts_that_hold_something_count() -> None:
    numbers = itertools.count()

    def collate(samples: list[Any]) -> Any:
        return None if next(numbers) % 2 else torch.stack([x for x, _ in samples])

    plan = CombinedPlan({"a": BatchPlan(26, 4), "b": BatchPlan(26, 3)})
    (batch,) = take(Loader({"a": Still(), "b": Still()}, plan=plan, collate=collate).epochs(), 1)
    assert batch.num_samples == 4 and batch.value["b"] is None and len(batch.value["a"]) == 4


def test_the_digest_of_the_order_says_which_samples_come_in_which_batches() -> None:
    def digest(num_samples: int = 20, batch_size: int = 4, **plan: Any) -> str | None:
        return Loader(
            list(range(num_samples)), plan=BatchPlan(num_samples, batch_size, **plan)
        ).order_digest()

    assert digest() == digest() and digest(seed=1) != digest()
    assert len({digest(), digest(num_samples=21), digest(batch_size=5), digest(shuffle=False)}) == 4
    assert digest(10_000, 4) != digest(10_001, 4, seed=0)
    plan = BatchPlan(20, 4)
    shards = [Loader(list(range(20)), plan=ShardedPlan(plan, rank, 2)).order_digest() for rank in (0, 1)]
    assert shards == [digest(), digest()]
    mixed = CombinedPlan({"a": plan, "b": BatchPlan(20, 4, seed=7)})
    two = Loader({"a": list(range(20)), "b": list(range(20))}, plan=mixed)
    assert two.order_digest() not in (None, digest())


def test_batches_without_indices_have_no_digest() -> None:
    assert Stream([1, 2, 3], batch_size=2).order_digest() is None
