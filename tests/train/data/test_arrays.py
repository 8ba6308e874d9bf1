"""Sets whose samples are rows of arrays."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset, default_collate

import roost
from roost.base.errors import ContractError
from roost.train.data.fetch import BatchFetcher
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from tests.messages import Messages

X = np.arange(40, dtype=np.float64).reshape(10, 4)
Y = np.arange(10, dtype=np.int32)
CSV = "height,weight,kind\n1.5,3,0\n2,4,1\n,5,1\n"


def shown(one: roost.Arrays) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    return [(tensor.dtype, tuple(tensor.shape)) for tensor in one.tensors]


# --- where they come from -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("y.npy", Y)
    np.savez("both.npz", images=X, labels=Y)
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "table.csv").write_text(CSV.replace("\n,", "\n3,"))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ((X, Y), {}),
        ([X.tolist(), Y.tolist()], {}),
        ((torch.from_numpy(X), torch.from_numpy(Y)), {}),
        ({"images": X, "labels": Y}, {}),
        ({"labels": Y, "DESCR": "a text", "images": X}, {"fields": ["images", "labels"]}),
        (lambda: (X, Y), {}),
        (["x.npy", "y.npy"], {}),
        ("both.npz", {}),
        (lambda: "both.npz", {"fields": ["images", "labels"]}),
        (lambda: {"data": X, "target": Y, "feature_names": ["a"]}, {"fields": ["data", "target"]}),
    ],
    ids=[
        *("arrays", "lists", "tensors", "mapping", "fields", "function", "npy", "npz"),
        *("function-of-a-file", "function-of-a-mapping"),
    ],
)
@pytest.mark.usefixtures("files")
def test_sources(source: Any, options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    found = roost.Arrays(source, **options)
    assert shown(found) == [(torch.float32, (10, 4)), (torch.int64, (10,))] and len(found) == 10
    x, y = found[3]
    assert x.tolist() == X[3].tolist() and y == 3


def test_one_array(files: Path) -> None:
    for source in (X, torch.from_numpy(X), files / "x.npy", "x.npy"):
        (x,) = roost.Arrays(source)[2]
        assert x.tolist() == X[2].tolist()


@pytest.mark.usefixtures("files")
def test_a_table() -> None:
    found = roost.Arrays("table.csv", targets="kind")
    assert shown(found) == [(torch.float32, (3, 2)), (torch.int64, (3,))]
    assert found.tensors[0].tolist() == [[1.5, 3], [2, 4], [3, 5]] and found.tensors[1].tolist() == [0, 1, 1]
    assert shown(roost.Arrays("table.csv")) == [(torch.float32, (3, 3))]
    assert shown(roost.Arrays("table.csv", targets=["kind", "weight"]))[0] == (torch.float32, (3, 1))
    named = roost.Arrays("table.csv", fields={"x": ["weight", "height"], "y": "kind"})
    assert named[1]["x"].tolist() == [4, 2] and named[1]["y"] == 1


# --- what is made of them -----------------------------------------------------------------------------


def test_types_scale_and_shape() -> None:
    pictures = np.arange(40, dtype=np.uint8).reshape(10, 4)
    assert shown(roost.Arrays((pictures, Y > 3))) == [(torch.uint8, (10, 4)), (torch.bool, (10,))]
    found = roost.Arrays((pictures, Y), scale=1 / 255, shape=[1, 2, 2])
    assert shown(found) == [(torch.float32, (10, 1, 2, 2)), (torch.int64, (10,))]
    assert torch.equal(found.tensors[0].reshape(10, 4), torch.from_numpy(pictures).float() * (1 / 255))
    options = {"dtype": {"1": "float64"}, "scale": {"1": 0.5}, "shape": {"0": [4, 1]}}
    found = roost.Arrays((X, Y), **options)  # type: ignore[arg-type]
    assert (
        shown(found) == [(torch.float32, (10, 4, 1)), (torch.float64, (10,))] and found.tensors[1][3] == 1.5
    )
    assert shown(roost.Arrays((X, Y), dtype="float16"))[0][0] == torch.float16
    named = roost.Arrays({"x": X, "y": Y}, fields={"x": "x", "y": "y"}, dtype={"y": "int32"})
    assert named[0]["y"].dtype == torch.int32
    big_endian = roost.Arrays(X.astype(">f8"))
    assert shown(big_endian) == [(torch.float32, (10, 4))]


def test_parts_of_one_source_have_no_sample_in_common() -> None:
    source = (np.arange(101),)
    cuts = [0.0, 0.7, 0.85, 1.0]
    found = [roost.Arrays(source, part=cuts[i : i + 2]).tensors[0].tolist() for i in range(3)]
    assert [len(one) for one in found] == [71, 15, 15]
    assert sorted(itertools.chain(*found)) == list(range(101)) and found[0] != sorted(found[0])
    torch.manual_seed(5)
    np.random.seed(5)
    assert roost.Arrays(source, part=[0.0, 0.7]).tensors[0].tolist() == found[0]
    assert roost.Arrays(source, part=[0.0, 0.7], seed=1).tensors[0].tolist() != found[0]


def test_the_order_of_the_parts_stays_as_it_is() -> None:
    """Another order would put samples of the training into the test of a run that goes on."""
    assert roost.Arrays((np.arange(8),), part=[0, 1]).tensors[0].tolist() == [2, 4, 3, 6, 5, 0, 1, 7]


# --- batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [None, {"x": "0", "y": "1"}])
def test_a_batch_at_once_is_the_same_as_its_samples_joined(fields: dict[str, str] | None) -> None:
    found = roost.Arrays((X, Y), fields=fields, shape=[2, 2] if fields is None else {"x": [2, 2]})
    rows = [7, 0, 3]
    fast, slow = BatchFetcher(found)((rows, 0)), default_collate([found[row] for row in rows])
    assert type(fast) is type(slow)
    pairs = zip(fast.values(), slow.values(), strict=True) if fields else zip(fast, slow, strict=True)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)
    assert BatchFetcher(found).is_in_memory and not BatchFetcher(found).draws_randomness
    assert not BatchFetcher(found, collate=default_collate).is_in_memory


def test_a_loader_draws_as_of_tensors() -> None:
    arrays = roost.Arrays((X, Y))
    found = []
    for dataset in (arrays, TensorDataset(*arrays.tensors)):
        loader = Loader(dataset, plan=BatchPlan(10, 4, seed=3), num_workers=0)
        found.append([batch.value for batch in loader.once()])
        loader.close()
    assert len(found[0]) == 3
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# --- what is wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "facts"),
    [
        ((X, Y[:9]), {}, ["0 (10, 4), 1 (9,)"]),
        (
            {"images": X},
            {"fields": ["image"]},
            ["'image'", "'images'", "images float64"],
        ),
        ((X, Y), {"fields": [2]}, ["0 float64 (10, 4), 1 int32 (10,)"]),
        ((X, Y), {"fields": []}, ["fields"]),
        ((X, Y), {"fields": [["0", "1"]]}, ["['0', '1']"]),
        ((X, Y), {"targets": "1"}, ["targets", ".csv"]),
        ((), {}, []),
        (3, {}, ["int"]),
        ((3,), {}, ["array 0"]),
        (([[1], [1, 2]],), {}, ["array 0"]),
        ((np.array(["a"]),), {}, ["field 0", "<U1 (1,)"]),
        ((X, Y), {"shape": [3]}, ["field 0", "(4,)", "[3]"]),
        ((X, Y), {"dtype": "floaty"}, ["field 0", "'floaty'"]),
        ((X, Y), {"dtype": "nn"}, ["field 0", "'nn'"]),
        ((X, Y), {"scale": {"2": 1}}, ["scale", "'2'", "0, 1"]),
        ((X, Y), {"part": [0.5, 0.5]}, ["part", "[0.5, 0.5]"]),
        ((X, Y), {"part": [0, 2]}, ["part", "[0, 2]"]),
        ((X, Y), {"part": [0.1]}, ["part", "[0.1]"]),
        ((X, Y), {"part": [0.0, 0.01]}, ["part", "10 samples"]),
        ("both.npz", {"fields": ["label"]}, ["both.npz", "'label'"]),
        (["both.npz"], {}, ["both.npz", "images, labels"]),
        ("objects.npy", {}, ["objects.npy", "pickle"]),
        ("table.txt", {}, ["table.txt", ".npy, .npz, .csv"]),
        ("table.csv", {"targets": "kinds"}, ["table.csv", "'kinds'", "'kind'"]),
    ],
)
@pytest.mark.usefixtures("files")
def test_one_clear_error(source: Any, options: dict[str, Any], facts: list[str], messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        roost.Arrays(source, **options)
    assert all(fact in str(refused.value) for fact in facts)
    cause = refused.value.__cause__  # NumPy's, where there is one
    messages.check(str(refused.value).replace(str(cause), "<NumPy's>") if cause else refused.value)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (CSV, ["'height'", "''"]),
        (CSV.replace("3,0", "3"), ["row 2", "2 columns", "3"]),
        (CSV.replace("weight", "kind"), ["table.csv"]),
        (CSV.replace("\n2,", "\ntwo,"), ["'height'", "'two'"]),
        ("", []),
    ],
    ids=["empty", "short", "same names", "words", "nothing"],
)
def test_tables_that_cannot_be_read(text: str, facts: list[str], tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ContractError) as refused:
        roost.Arrays(tmp_path / "table.csv")
    assert all(fact in str(refused.value) for fact in facts)
    messages.check(refused.value)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    for name in ("x.npy", "x.csv"):
        with pytest.raises(FileNotFoundError, match=name):
            roost.Arrays(tmp_path / name)


def test_a_csv_file_of_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("größe,x\n1,2\n".encode("utf-16"))
    with pytest.raises(ContractError, match=r"a\.csv .*UTF-8"):
        roost.Arrays(str(tmp_path / "a.csv"))
