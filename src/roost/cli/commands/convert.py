"""`roost convert`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.display import terminal


@click.command("convert")
@click.argument("trainer", metavar="speechain|cornernet")
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder of the project; default: one with the config's name.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A .pth, .mdl, .pkl or .safetensors file with which the project begins.",
)
@click.option("--entry", metavar="NAME", help="With --weights: the entry of the file that has the weights.")
@click.option(
    "--trust", is_flag=True, help="With --weights: load pickled objects of the file, which may run any code."
)
def command(
    trainer: str,
    config: Path,
    words: tuple[str, ...],
    output: Path | None,
    weights: Path | None,
    entry: str | None,
    trust: bool,
) -> int:
    """Converts a config of SpeeChain or CornerNet into a project.

    The folder gets config.yaml with every option of the config and the defaults of that trainer for all
    others, the code that connects its classes, and conversion.md: what each option became, and what has no
    counterpart, which is also printed. Options after the config are those of that trainer's command line.
    Nothing of it is imported or run.

    \b
    roost convert speechain recipes/asr/exp_cfg/conformer.yaml
    roost convert speechain exp.yaml data_cfg=data.yaml train_cfg=train.yaml ngpu=2 -o conformer
    roost convert speechain exp.yaml --weights exp/conformer/models/10_valid_accuracy_average.pth
    roost convert cornernet configs/CornerNet_Squeeze.json -o squeeze
    roost convert cornernet configs/CornerNet.json workers=8 --weights CornerNet_500000.pkl --trust
    """
    from roost.operations.converting.convert import ConvertRequest, convert

    request = ConvertRequest(
        trainer=trainer,
        config=config,
        words=words,
        output=output,
        weights=weights,
        entry=entry,
        trust=trust,
    )
    written = convert(request)
    for name, why in written.without_counterpart:
        terminal.print_status(terminal.escape_text(f"no counterpart: {name}: {why}"))
    for text in written.remarks:
        terminal.print_status(terminal.escape_text(f"to check: {text}"))
    click.echo(f"{terminal.format_path(written.path)}/")
    for name in written.files:
        click.echo(f"  {name}")
    click.echo("next:")
    for line in written.next_commands:
        click.echo(f"  {line}")
    return 0
