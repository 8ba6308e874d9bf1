from __future__ import annotations

import struct
import zlib

import pytest

from roost.train.mirrors import wandb_offline_log

HEADER = b":W&B\xe1\xbe\x00"


def log(*bodies: bytes) -> bytes:
    """As LevelDB writes it: blocks of 32 KiB, none split where its header does not fit."""
    data = HEADER
    for body in bodies:
        first = True
        while first or body:
            left = 2**15 - len(data) % 2**15
            if left < 7:
                data += bytes(left)
                continue
            piece, body = body[: left - 7], body[left - 7 :]
            kind = (1 if not body else 2) if first else (4 if not body else 3)
            data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    return data


LONG = [b"a" * 10, b"b" * 100_000, b"c" * (2**15 - 30), b"d"]


@pytest.mark.parametrize("bodies", [[], [b"one"], LONG, [b"x" * n for n in range(32730, 32770)]])
def test_records_of_any_length(bodies: list[bytes]) -> None:
    assert list(wandb_offline_log.records(log(*bodies))) == bodies


def test_a_torn_end_and_what_is_damaged_end_it() -> None:
    whole = log(*LONG)
    assert list(wandb_offline_log.records(whole[:-1])) == LONG[:-1]
    assert list(wandb_offline_log.records(whole[:50_000])) == LONG[:1]
    assert list(wandb_offline_log.records(whole[:20] + b"?" + whole[21:])) == []
    assert list(wandb_offline_log.records(b"something else")) == []
