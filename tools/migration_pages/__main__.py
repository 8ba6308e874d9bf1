"""``python -m tools.migration_pages NAME > docs/from-NAME.md`` renews a page, for example cornernet."""

from __future__ import annotations

import sys

from tools.migration_pages import cornernet, dlnest, speechain
from tools.migration_pages.page import markdown

PAGES = {
    "cornernet": ("from-cornernet.md", cornernet.PAGE),
    "dlnest": ("from-dlnest.md", dlnest.PAGE),
    "speechain": ("from-speechain.md", speechain.PAGE),
}
"""The file in docs and the page, by the name of the other trainer."""


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0] not in PAGES:
        sys.exit(f"usage: python -m tools.migration_pages {'|'.join(PAGES)}")
    print(markdown(PAGES[arguments[0]][1]), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
