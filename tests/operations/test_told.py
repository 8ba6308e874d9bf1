"""Ids in what the lab says."""

from __future__ import annotations

from roost.operations.told import ids_in, shortened

ONE, OTHER = "01m7ybz8bp0000000000000001", "01m7ybz8c40000000000000002"


def test_ids_are_cut_to_what_tells_them_apart() -> None:
    text = f"reservation: GPU 0 is kept for a ({ONE}); {OTHER} and {ONE}x"
    assert ids_in([text, text, ""]) == {ONE, OTHER}
    assert shortened(text, {ONE: "01m7ybz8b"}) == (
        f"reservation: GPU 0 is kept for a (01m7ybz8b); {OTHER} and {ONE}x"
    )
