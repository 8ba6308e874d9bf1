"""``python -m roost.config.documents 001 > docs/from-cornernet.md`` renews a page; ``003`` is SpeeChain's."""

from __future__ import annotations

import sys

from roost.config.documents import cornernet, speechain
from roost.config.documents.page import markdown

PAGES = {"001": ("from-cornernet.md", cornernet.PAGE), "003": ("from-speechain.md", speechain.PAGE)}
"""By number: the file in docs, and the page."""

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PAGES:
        sys.exit(f"usage: python -m roost.config.documents {'|'.join(PAGES)}")
    print(markdown(PAGES[sys.argv[1]][1]), end="")
