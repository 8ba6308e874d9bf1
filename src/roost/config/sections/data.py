"""``data``: how samples become batches."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.config.sections.field_types import Positive, help_text
from roost.config.sections.staging import Stage

_Workers = Annotated[int, Meta(ge=0, le=256)]
_Prefetch = Annotated[int, Meta(ge=1, le=1024)]
_Limit = Positive | Annotated[float, Meta(gt=0, le=1)] | None
_ALL = "give a number of batches (10), a share of them (0.1), or null for all"
BATCH_SIZE = 32
"""Samples per batch if no setting limits a batch."""


class SplitSettings(Struct, frozen=True, kw_only=True):
    """``data.valid`` and ``data.test``: settings that differ from training."""

    batch_size: Annotated[
        Positive | None, help_text("samples per batch; as in training if max_tokens is not set either")
    ] = None
    max_tokens: Annotated[
        Positive | None, help_text("most tokens per batch; as in training if batch_size is not set either")
    ] = None
    num_workers: Annotated[
        _Workers | Literal["auto"] | None, help_text("loader workers; by default as in training")
    ] = None


class MixSettings(Struct, frozen=True, kw_only=True):
    """``data.mix``: how several training sets become batches."""

    mode: Annotated[
        Literal["min_size", "max_size_cycle", "sequential", "weighted"],
        help_text("the first two draw a batch of each set at a time, the others of one set"),
    ] = "min_size"
    weights: Annotated[
        dict[str, Annotated[float, Meta(ge=0)]],
        help_text("share of each set in mode weighted"),
    ] = {}
    batch_sizes: Annotated[
        dict[str, Positive], help_text("samples per batch of each set; by default data.batch_size")
    ] = {}


class DataSettings(Struct, frozen=True, kw_only=True):
    """``data``: how samples become batches."""

    stage: Stage = None
    batch_size: Annotated[
        Positive | None, help_text("samples per micro-batch; by default 32, or no limit with max_tokens")
    ] = None
    num_workers: Annotated[
        _Workers | Literal["auto"], help_text("loader workers; 0 loads in the training process")
    ] = "auto"
    shuffle: Annotated[bool, help_text("whether each epoch has another random order")] = True
    drop_last: Annotated[bool, help_text("whether an incomplete last batch is dropped")] = False
    weighted: Annotated[
        bool, help_text("whether samples are drawn by the set's weights, with replacement")
    ] = False
    sort_by_length: Annotated[
        Literal["ascending", "descending"] | None,
        help_text(
            "whether samples are sorted by the set's lengths",
            fix="write ascending for the shortest first, or descending",
        ),
    ] = None
    max_tokens: Annotated[Positive | None, help_text("most tokens per micro-batch, by the set's lengths")] = (
        None
    )
    count_padding: Annotated[bool, help_text("with max_tokens, whether padding counts as tokens")] = True
    steps_per_epoch: Annotated[
        Positive | None, help_text("steps per epoch, whatever the size of the set")
    ] = None
    limit_train_batches: Annotated[
        _Limit, help_text("the first micro-batches of an epoch to use: a number or share", fix=_ALL)
    ] = None
    limit_valid_batches: Annotated[
        _Limit, help_text("the first batches of a validation to use: a number or share", fix=_ALL)
    ] = None
    limit_test_batches: Annotated[
        _Limit, help_text("the first batches of a test to use: a number or share", fix=_ALL)
    ] = None
    mix: Annotated[MixSettings | None, help_text("how several training sets become batches")] = None
    prefetch: Annotated[_Prefetch, help_text("batches that each loader worker prepares in advance")] = 2
    loader_timeout: Annotated[
        Annotated[float, Meta(gt=0)] | str,
        help_text("time after which a silent loader worker counts as hung; seconds or 10min"),
    ] = 300
    valid: Annotated[SplitSettings, help_text("settings that differ in validation")] = SplitSettings()
    test: Annotated[SplitSettings, help_text("settings that differ in the test")] = SplitSettings()
