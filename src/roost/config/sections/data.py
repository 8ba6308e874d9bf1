"""``data``: how samples become batches."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.config.sections.field_types import Positive, help_text

_Workers = Annotated[int, Meta(ge=0, le=256)]
_Prefetch = Annotated[int, Meta(ge=1, le=1024)]
_Limit = Positive | Annotated[float, Meta(gt=0, le=1)] | None
_ALL = "give a number of batches (10), a share of them (0.1), or null for all"
BATCH_SIZE = 32
"""Samples a batch where nothing else limits one."""


class SplitSettings(Struct, frozen=True, kw_only=True):
    """``data.valid`` and ``data.test``: what differs from training."""

    batch_size: Annotated[
        Positive | None, help_text("samples a batch; as in training if max_tokens is left out, too")
    ] = None
    max_tokens: Annotated[
        Positive | None, help_text("most tokens a batch; as in training if batch_size is left out, too")
    ] = None
    num_workers: Annotated[
        _Workers | Literal["auto"] | None, help_text("loader processes; that of training if left out")
    ] = None


class MixSettings(Struct, frozen=True, kw_only=True):
    """``data.mix``: how several training sets become batches."""

    mode: Annotated[
        Literal["min_size", "max_size_cycle", "sequential", "weighted"],
        help_text("the first two: a batch of each set a time; the others: of one"),
    ] = "min_size"
    weights: Annotated[
        dict[str, Annotated[float, Meta(ge=0)]],
        help_text("share of each set in mode weighted"),
    ] = {}
    batch_sizes: Annotated[
        dict[str, Positive], help_text("samples a batch of each set; data.batch_size if left out")
    ] = {}


class DataSettings(Struct, frozen=True, kw_only=True):
    """``data``: how samples become batches."""

    batch_size: Annotated[
        Positive | None, help_text("samples a micro-batch; if left out 32, with max_tokens any number")
    ] = None
    num_workers: Annotated[_Workers | Literal["auto"], help_text("loader processes; 0 loads inline")] = "auto"
    shuffle: Annotated[bool, help_text("whether each epoch has its own order")] = True
    drop_last: Annotated[bool, help_text("whether a last batch that is not full is left out")] = False
    weighted: Annotated[
        bool, help_text("whether samples are drawn by the set's weights, with replacement")
    ] = False
    sort_by_length: Annotated[
        Literal["ascending", "descending"] | None,
        help_text("order of the samples by the set's lengths", fix="ascending draws the shortest first"),
    ] = None
    max_tokens: Annotated[Positive | None, help_text("most tokens a micro-batch, by the set's lengths")] = (
        None
    )
    count_padding: Annotated[bool, help_text("with max_tokens, whether padding counts as tokens")] = True
    steps_per_epoch: Annotated[Positive | None, help_text("steps an epoch, however large the set is")] = None
    limit_train_batches: Annotated[
        _Limit, help_text("an epoch's first so many micro-batches, or share", fix=_ALL)
    ] = None
    limit_valid_batches: Annotated[
        _Limit, help_text("a validation's first so many batches, or share", fix=_ALL)
    ] = None
    limit_test_batches: Annotated[_Limit, help_text("a test's first so many batches, or share", fix=_ALL)] = (
        None
    )
    mix: Annotated[MixSettings | None, help_text("how several training sets become batches")] = None
    prefetch: Annotated[_Prefetch, help_text("batches each loader process is ahead")] = 2
    loader_timeout: Annotated[
        Annotated[float, Meta(gt=0)] | str,
        help_text("silence after which a loader process hangs; seconds or 10min"),
    ] = 300
    valid: Annotated[SplitSettings, help_text("what differs in validation")] = SplitSettings()
    test: Annotated[SplitSettings, help_text("what differs in the test")] = SplitSettings()
