"""``python -m roost`` is the program ``roost``."""

from __future__ import annotations

from roost.cli.__main__ import main

if __name__ == "__main__":
    main()
