"""On what the memory of a run may depend."""

from __future__ import annotations

from typing import Any

from roost.lab.memory.memory_features import MemoryFeatures, memory_features

SETTINGS = {
    "seed": 0,
    "data": {"batch_size": 64, "num_workers": 2},
    "optimizers": {"main": {"class": "torch.optim.AdamW", "lr": 1e-3}},
    "precision": "bf16",
    "model": {"width": 8},
}


def found(code: str = "digest", **changed: Any) -> tuple[MemoryFeatures, float | None]:
    return memory_features({**SETTINGS, **changed}, family="project", code=code, sweep=None)


def test_what_never_matters_is_left_out_and_the_batch_is_the_scale() -> None:
    same, scale = found()
    assert scale == 64.0
    assert same.settings.keys() == {
        "data.batch_size", "data.num_workers", "optimizers.main.class", "precision", "model.width"
    }  # fmt: skip
    assert found(data={"num_workers": 2, "batch_size": 128}) == (same, 128.0)
    assert found(seed=1, optimizers={"main": {"class": "torch.optim.AdamW", "lr": 1.0}})[0] == same
    others = [
        found("other"),
        found(precision=32),
        found(model={"width": 9}),
        found(optimizers={"main": {"class": "torch.optim.SGD", "lr": 1e-3}}),
        found(data={"max_tokens": 64, "num_workers": 2}),
    ]
    assert len({same.to_text(), *(other.to_text() for other, _ in others)}) == 6
    assert found(data={"batch_size": "${size}"})[1] is None and found(data=None, optimizers=[1])[1] is None


def test_the_text_is_read_as_it_was_and_one_of_an_older_version_is_a_family() -> None:
    one, _ = memory_features(SETTINGS, family="project", code="digest", sweep="s")
    assert MemoryFeatures.from_text(one.to_text()) == one and one.sweep == "s"
    assert MemoryFeatures.family_of(one.to_text()) == one.family and MemoryFeatures.family_of("p") == "p"
    assert MemoryFeatures.from_text("0123456789abcdef" * 2) == MemoryFeatures("0123456789abcdef" * 2)
    assert MemoryFeatures.from_text("p") == MemoryFeatures("p")
