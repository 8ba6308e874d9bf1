"""The Markdown report of a conversion: what every option became, and what has no counterpart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from roost.operations.converting.conversion import Conversion, ConvertedOption


def report(conversion: Conversion, commands: Sequence[str], weights: Sequence[str]) -> str:
    """Returns the report.

    Args:
        conversion: The result of the conversion.
        commands: The next commands to type.
        weights: Lines about converted weights.
    """
    return "\n".join(_lines(conversion, commands, weights)) + "\n"


def _lines(conversion: Conversion, commands: Sequence[str], weights: Sequence[str]) -> Iterator[str]:
    yield f"# {conversion.source.name}, converted from {conversion.tool}"
    yield ""
    yield f"`config.yaml` has every option of {conversion.source.name}, and for all others the defaults of"
    yield f"{conversion.tool}. Its section `{conversion.section}` is read by the project's code alone."
    yield from ("", "```bash", *commands, "```", "")
    yield from ("## Without a counterpart", "")
    found = conversion.without_counterpart()
    yield from (f"- `{name}`: {why}" for name, why in found)
    if not found:
        yield "Nothing."
    yield from ("", "## To check", "")
    yield from (f"- {text}" for text in [*conversion.remarks, *weights])
    given = [one for one in conversion.options.values() if one.is_given]
    yield from ("", "## Options of the config", "", *_table(given))
    rest = [one for one in conversion.options.values() if not one.is_given]
    yield from ("", f"## Defaults of {conversion.tool}", "", *_table(rest))


def _table(options: Sequence[ConvertedOption]) -> Iterator[str]:
    yield "| there | value | here | remark |"
    yield "|---|---|---|---|"
    for one in options:
        here = [*(f"`{key}`" for key in one.keys)]
        if not here:
            here = [f"`{command}`" for command in one.option.commands] or ["–"]
        cells = (f"`{one.option.name}`", f"`{_shown(one.value)}`", ", ".join(here), one.option.note)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str).replace("`", "'")
    return text if len(text) <= 60 else f"{text[:57]}..."
