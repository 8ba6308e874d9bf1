"""`roost notices`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.base.errors import NotFound
from roost.display import table, terminal


@click.command("notices")
@click.option("--test", is_flag=True, help="Send a test notice to each receiver, and show the results.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(test: bool, as_json: bool) -> int:
    """Shows the receivers that are notified when tasks and runs end, fail or stall. Secrets are not shown.

    Receivers are configured in ~/.config/roost/notices.yaml, which only you may read (chmod 600):

    \b
    receivers:
      phone: {kind: ntfy, url: https://ntfy.sh/a-topic-that-is-hard-to-guess}

    Kinds: mail, ntfy, slack, dingtalk, lark, wecom, webhook.

    \b
    roost notices
    roost notices --test
    """
    from roost.operations.notices import notices, try_notices

    found = try_notices() if test else notices()
    is_missing = not Path(found.file).exists()
    code = NotFound.exit_code if is_missing else 1 if any(one.why_not for one in found.receivers) else 0
    if as_json:
        terminal.print_json(found)
        return code
    if is_missing:
        terminal.print_status(f"no notices are sent: write {found.file}, as `roost notices --help` shows")
        return code
    least = f", only after {found.least_minutes:g} minutes" if found.least_minutes else ""
    terminal.print_status(
        f"{terminal.format_path(Path(found.file))}: {', '.join(found.events) or 'no events'}{least}"
    )
    rows = [(one.name, one.kind, one.place, _test_result(one.why_not)) for one in found.receivers]
    for line in table.format_table(("NAME", "KIND", "WHERE", "TEST"), rows) if rows else ():
        click.echo(line)
    return code


def _test_result(why_not: str | None) -> str:
    if why_not is None:
        return ""
    return f"failed: {why_not}" if why_not else "sent"
