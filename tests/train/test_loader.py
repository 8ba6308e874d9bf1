from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from roost.base import process
from roost.base.errors import ContractError
from roost.train import seeding
from roost.train.loader import Batch, Fetch, Loader
from roost.train.plan import BatchPlan
from tests.train.parts import MLP, Pictures, Points, Recipe, Still, StopAt, bits, built, loader, plain
from tests.waiting import wait_for


def take(batches: Iterator[Batch], number: int) -> list[Batch]:
    """The first batches, everything closed afterwards."""
    with closing(batches):  # type: ignore[type-var]
        return list(itertools.islice(batches, number))


class WithGenerator(Points):
    """Asks for a generator of its own."""

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        assert rng is not None
        return self.x[index] + float(rng.standard_normal()), self.y[index]


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
    assert [(batch.num_samples, batch.last) for batch in batches] == [
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


def test_arrays_and_sets_that_draw_nothing_are_not_seeded() -> None:
    class Reads(Still):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            assert random.getstate() == state, "seeded for nothing"
            return super().__getitem__(index)

    state = random.getstate()
    take(loader(Reads()).epochs(), 2)
    arrays = loader(TensorDataset(Still().x, Still().y))
    assert not arrays.fetch.draws_randomness
    by_sample = take(loader(Still()).epochs(), 8)
    assert bits([b.value for b in take(arrays.epochs(), 8)]) == bits([b.value for b in by_sample])


def test_a_set_that_gives_whole_batches_is_asked_for_them() -> None:
    class Whole(Still):
        def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, Tensor]]:
            asked.append(indices)
            return [self[index] for index in indices]

    asked: list[list[int]] = []
    batch = take(loader(Whole()).epochs(), 1)[0]
    assert len(asked) == 1 and len(asked[0]) == 4
    assert torch.equal(batch.value[0], Still().x[asked[0]])


def test_own_collate() -> None:
    batch = take(loader(Still(), collate=lambda samples: len(samples), num_workers=2).epochs(), 1)[0]
    assert batch.value == 4


# --- what the dataset does wrong --------------------------------------------------------------------------


class Broken(Still):
    """Sample 7 fails."""

    draws_randomness = True

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 7:
            raise ValueError("cannot decode")
        return super().__getitem__(index)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sample_that_raises_names_itself(num_workers: int) -> None:
    with pytest.raises(ValueError, match="cannot decode") as caught:
        take(loader(Broken(), num_workers=num_workers).epochs(), 7)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "while reading sample 7 of Broken" in told


def test_a_set_with_a_name_is_called_by_it() -> None:
    with pytest.raises(ValueError, match="cannot decode") as caught:
        Fetch(Broken(), name="the test set")(0, [7])
    assert caught.value.__notes__ == ["while reading sample 7 of the test set (Broken)"]
    with pytest.raises(ContractError, match=r"the samples of Odd \(NoneType\) in the test set cannot"):
        Fetch(Odd("none"), name="the test set")(0, [0, 1])


class Odd(Dataset[Any]):
    """Samples that cannot be joined."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {
            "none": None,
            "shapes": torch.zeros(index),
            "keys": {f"x{index}": 1.0},
            "kinds": "text" if index % 2 else 1.0,
            "lengths": [1.0] * (index + 1),
            "objects": object(),
        }[self.kind]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", ["none", "shapes", "keys", "kinds", "lengths", "objects"])
def test_samples_that_cannot_be_joined(kind: str, num_workers: int) -> None:
    with pytest.raises(
        ContractError, match=r"the samples of Odd \(.*\) cannot be joined.*To mend it: "
    ) as caught:
        take(loader(Odd(kind), num_workers=num_workers).epochs(), 1)
    assert "\n" not in str(caught.value), "one clear line, also from a worker process"


def test_none_is_named() -> None:
    with pytest.raises(ContractError, match=r"the samples of Odd \(NoneType\)"):
        take(loader(Odd("none")).epochs(), 1)


@pytest.mark.parametrize(
    ("dataset", "ignores"),
    [(Points(), False), (Still(), False), (WithGenerator(), False), (Odd("objects"), False)],
)
def test_one_sample_drawn_twice_tells_whether_seeding_works(dataset: Any, ignores: bool) -> None:
    before = bits(seeding.rng_state())
    assert Fetch(dataset).ignores_seeding() == ignores
    assert bits(seeding.rng_state()) == before


@pytest.mark.parametrize(
    "generator", [torch.Generator(), np.random.default_rng(0), random.Random(0), random.SystemRandom()]
)
def test_a_set_with_a_generator_of_its_own_ignores_seeding(generator: Any) -> None:
    class Own(Still):
        draws_randomness = True

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            if isinstance(generator, torch.Generator):
                return self.x[index] + torch.randn(6, generator=generator), self.y[index]
            return self.x[index] + float(generator.random()), self.y[index]

    assert Fetch(Own()).ignores_seeding()


class Rows(Dataset[int]):
    """A file of one row per sample, opened at the first one: seeks and reads, as readers of HDF5 do."""

    def __init__(self, path: Path) -> None:
        self.path, self.fd = path, -1

    def __len__(self) -> int:
        return self.path.stat().st_size // 8

    def __getitem__(self, index: int) -> int:
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDONLY)
        os.lseek(self.fd, index * 8, os.SEEK_SET)
        time.sleep(0)  # somebody else's turn
        return int(os.read(self.fd, 8))


def test_a_set_that_opens_its_file_lazily_is_not_opened_before_the_workers_are(tmp_path: Path) -> None:
    """They would share one file offset, and read each other's rows without an error."""
    file = tmp_path / "rows"
    file.write_text("".join(f"{number:8}" for number in range(2000)))
    rows = Rows(file)
    reader = loader(rows, 20, shuffle=False, num_workers=2)
    before = bits(seeding.rng_state())
    assert not reader.ignores_seeding()
    assert rows.fd == -1 and bits(seeding.rng_state()) == before
    assert torch.cat([batch.value for batch in reader.once()]).tolist() == list(range(2000))


class Draws(Still):
    """What one sample does when it is looked at whether seeding works."""

    draws_randomness = True

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.kind == "unseeded":
            return self.x[index] + random.SystemRandom().random(), self.y[index]
        if self.kind == "raises":
            raise ValueError
        if self.kind == "dies":
            os._exit(3)
        while self.kind == "hangs":
            signal.pause()
        return self.x[index] + torch.randn(6), self.y[index]


@pytest.mark.parametrize(
    ("kind", "ignores", "said"),
    [
        ("seeded", False, ""),
        ("unseeded", True, ""),
        ("raises", False, ""),  # its worker says it
        ("dies", False, "is not known: the process that read a sample died\n"),
        ("hangs", False, "is not known: no sample within 0.2 s\n"),
    ],
)
def test_with_workers_a_process_of_its_own_looks(
    kind: str,
    ignores: bool,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "hangs":
        monkeypatch.setattr("roost.train.loader._LOOK_SECONDS", 0.2)
    assert loader(Draws(kind), num_workers=2).ignores_seeding() == ignores
    assert capsys.readouterr().out.endswith(said)
    assert living_workers() == []


def test_without_workers_it_is_looked_at_here() -> None:
    assert loader(Draws("unseeded")).ignores_seeding()
    assert not loader(Draws("seeded")).ignores_seeding()
    assert not loader(Still(), num_workers=2).ignores_seeding()


# --- processes and resume ---------------------------------------------------------------------------------


def living_workers() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("taken", [1, 9])
def test_workers_are_gone_after_closing(taken: int) -> None:
    batches = loader(Points(), num_workers=2).epochs()
    for _ in range(taken):
        next(batches)
    workers = living_workers()
    assert len(workers) == 2, "the same two for all epochs"
    batches.close()  # type: ignore[attr-defined]
    wait_for(lambda: not any(map(exists, workers)))


def test_workers_are_gone_after_a_failure_in_training() -> None:
    class Fails(MLP):
        def loss(self, batch: Any) -> Any:
            workers.extend(living_workers())
            raise KeyError

    workers: list[int] = []
    trainer = plain(built(Fails), Points(), loaders={"train": loader(Points(), num_workers=2)})
    with pytest.raises(KeyError):
        trainer.fit()
    assert len(workers) == 2
    wait_for(lambda: not any(map(exists, workers)))


STUCK = """
import os, sys, time
import torch
from roost.train.loader import Loader
from roost.train.plan import BatchPlan

class Stuck:
    draws_randomness = False
    def __len__(self):
        return 8
    def __getitem__(self, index):
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(1000)

next(Loader(Stuck(), plan=BatchPlan(8, 1), num_workers=2).epochs())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_workers_die_with_a_killed_training_even_while_they_read() -> None:
    """They hold the package's lock: `continue` must find it free."""
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        workers = [int(training.stdout.readline()) for _ in range(2)]
        assert all(process.read_stat(pid) for pid in workers)
        training.kill()

    def gone(pid: int) -> bool:
        stat = process.read_stat(pid)
        return stat is None or stat.ended

    wait_for(lambda: all(map(gone, workers)))


def test_memory_is_pinned_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning opens a CUDA context, which training on a CPU has no use for."""
    seen = []

    class Spy(torch.utils.data.DataLoader[Any]):
        def __init__(self, *positional: Any, **options: Any) -> None:
            seen.append(options["pin_memory"])
            super().__init__(*positional, **{**options, "pin_memory": False})

    monkeypatch.setattr("roost.train.loader.DataLoader", Spy)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for options in ({}, {"pin_memory": True}):
        take(loader(Still(), num_workers=1, **options).epochs(), 1)
    assert seen == [False, True]


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


def test_a_resume_reads_nothing_again(tmp_path: Any) -> None:
    early, late = (reads_before_the_first_step(done, tmp_path / str(done)) for done in (10, 90))
    # One sample twice, to see whether it is seeded; the batch; and what tries the validation out.
    assert late == early < 20
