from __future__ import annotations

import gc

import pytest

from roost.base.system.collector_pause import paused_collector


def test_the_collector_works_again_after_the_outermost_pause() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="mine"), paused_collector():
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("mine")
    assert gc.isenabled()


def test_a_process_without_a_collector_gets_none() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
