"""The examples in docs/ are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import torch
import yaml

import roost
from roost.cli.__main__ import COMMANDS
from roost.cli.__main__ import roost as program
from roost.config import layers
from roost.config.build import forget
from roost.config.settings import typed
from roost.package import initial_weights, performance
from roost.package.prepared import prepare_training
from roost.project import assemble, loading, native
from roost.project.inside import inside
from roost.train.optimizers import build_optimizers, describe
from roost.worker.predicted import Predicted
from tests.project.trained import trained

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guide.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def run_block(holds: str) -> dict[str, Any]:
    """Runs the one Python block that holds a text; gives what it defines."""
    (text,) = (block for block in blocks("python") if holds in block)
    names: dict[str, Any] = {}
    exec(compile(text, "guide.md", "exec"), names)  # noqa: S102  - our own guide: that its blocks run is the test
    return names


def test_the_config_is_understood(tmp_path: Path) -> None:
    config, *_ = blocks("yaml")
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "model.yaml").write_text("width: 32\n")
    loaded = layers.load(tmp_path / "config.yaml")
    settings = typed(loaded.values)
    assert loaded.values["width"] == 64 and settings.checkpoint.every == ["1ep", "10min"]


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.split(":")[0])
def test_every_config_is_understood(text: str, tmp_path: Path) -> None:
    own = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": "1"}
    lines = [f"{key}: {value}" for key, value in own.items() if not re.search(rf"(?m)^{key}:", text)]
    (tmp_path / "config.yaml").write_text("\n".join([*lines, text]))
    (tmp_path / "model.yaml").write_text("width: 32\n")
    loaded = layers.load(tmp_path / "config.yaml")
    typed(loaded.values, where=loaded.where)


COMMAND_LINES = [
    line
    for page in (
        "README.md",
        "docs/guide.md",
        "docs/lab.md",
        "docs/notices.md",
        "docs/ranks.md",
        "docs/server.md",
    )
    for block in re.findall(r"```bash\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    for line in re.findall(r"roost [a-z][^\n)]*", block)
]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_and_its_options_are_there(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    command = program.get_command(click.Context(program), name)
    assert command is not None
    command.make_context(name, arguments)


def test_the_optimizers_are_built(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "Schedules.py:noam" in block)
    (function,) = re.findall(r"`(def noam.*?)`", GUIDE)
    (tmp_path / "Schedules.py").write_text(function)
    (tmp_path / "config.yaml").write_text(f"runner: a.py:A\ndataset: b.py:B\nmax_steps: 500\n{section}")
    body = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    body.norm = torch.nn.LayerNorm(2)
    module = torch.nn.ModuleDict({"body": body, "head": torch.nn.Linear(2, 1)})
    asked = typed(layers.load(tmp_path / "config.yaml").values).optimizers
    totals = {"total_steps": 500, "steps_per_epoch": 50}
    found = build_optimizers(module, asked, totals=totals, root=tmp_path)
    forget(tmp_path)
    assert [len(optim.optimizer.param_groups) for optim in found.values()] == [3, 1]
    assert len(describe(found)) == 2


def test_the_weights_to_begin_with_are_understood() -> None:
    asked = [block for block in blocks("yaml") if "init_from:" in block]
    base = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1}
    found = [typed({**base, **yaml.safe_load(block)}) for block in asked]
    several = [one for settings in found for _, one in initial_weights.entries(settings)]
    assert [one.strict for one in several] == [True, True, False] and found[0].freeze == ["net.features.*"]
    runner = run_block("class Finetuned")["Finetuned"]()
    runner.build()
    runner.train()
    assert runner.net["head"].training and not runner.net["body"][1].training


def test_the_data_is_read(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "sort_by_length" in block)
    (tmp_path / "config.yaml").write_text(f"runner: a.py:A\ndataset: b.py:B\nmax_steps: 1\n{section}")
    settings = typed(layers.load(tmp_path / "config.yaml").values)
    data = native.checked(run_block("class Speech")["Dataset"]({}).build(), roost.Dataset)
    made = loading.loaders(data, settings, device=torch.device("cpu"), batches_per_step=2)
    assert {name: len(one) for name, one in made.items()} == {
        "train": 1000,
        "valid/clean": 1,
        "valid/noisy": 1,
    }
    drawn = next(made["train"].epochs()).value
    made["train"].close()
    assert drawn["clean"].shape == (32, 80, 4) and drawn["noisy"].shape == (8, 60, 4)


def test_what_has_no_index_is_read() -> None:
    asked = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, "data": {"batch_size": 4}}
    lengths = {"iterable": {"steps_per_epoch": 5}, "whole_batches": {}, "foreign": {}}
    names = run_block("class Endless")
    for name, own in lengths.items():
        settings = typed({**asked, "data": {"batch_size": 4, **own}})
        made = loading.loaders(
            native.checked(names[name], roost.Dataset), settings, device=torch.device("cpu")
        )
        batch = next(made["train"].epochs())
        assert (len(made["train"]), batch.value.shape) == (own.get("steps_per_epoch", 8), (4, 2))


def test_the_gan_draws_its_noise_where_the_batch_is() -> None:
    gan = run_block("class Gan")["Gan"]()
    gan.build()
    gan.to("meta")
    loss = gan.critic_loss(torch.zeros(3, 2, device="meta")) + gan.generator_loss(
        torch.zeros(3, 2, device="meta")
    )
    assert loss.device.type == "meta"
    assert gan.evaluate(torch.zeros(3, 2, device="meta"))["gap"].shape == (3,)


def test_the_averages_are_understood_and_the_loop_averages(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "averages:" in block)
    (tmp_path / "config.yaml").write_text(f"runner: a.py:A\ndataset: b.py:B\nmax_steps: 1\n{section}")
    settings = typed(layers.load(tmp_path / "config.yaml").values)
    assert list(settings.averages) == ["ema", "swa"] and settings.averages["swa"].start == "5ep"
    names = run_block("average.swapped(model)")
    assert names["average"].count == 3
    assert names["measured"] > float(names["model"](torch.ones(4, 2)).detach().square().mean())


def test_the_run_that_is_yaml_alone(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "sklearn.datasets.load_digits" in block)
    (code,) = (block for block in blocks("python") if "class Doubts" in block)
    (tmp_path / "config.yaml").write_text(section)
    (tmp_path / "Own.py").write_text(code)
    config = layers.load(tmp_path / "config.yaml", overrides=["channels=3", "max_epochs=1"])
    made = prepare_training(config).create("one")
    with inside(made):
        experiment = native.load(made, project=str(tmp_path), device="cpu")
        trainer = assemble.assemble(experiment, made, session=made.new_session({}))
        assert trainer.fit() == "finished"
    assert {"valid/loss", "valid/label", "valid/size", "valid/hits", "valid/f1"} <= trainer.results.keys()
    assert experiment.runner.state_dict()["model.0.weight"].shape == (3, 1, 3, 3)


LINKS = re.compile(r"\]\(([^)#:]+)\)")


def test_the_contents_name_every_section() -> None:
    sections = re.findall(r"(?m)^## (.*)$", GUIDE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", section.lower()).replace(" ", "-") for section in sections]
    assert re.findall(r"\]\(#(.*?)\)", GUIDE) == anchors


def test_what_is_linked_is_there() -> None:
    for page in (
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "docs/guide.md",
        "docs/lab.md",
        "docs/notices.md",
        "docs/ranks.md",
        "docs/server.md",
    ):
        file = ROOT / page
        missing = [link for link in LINKS.findall(file.read_text()) if not (file.parent / link).exists()]
        assert not missing, page
    assert {"docs/guide.md", "examples/plain_loop.py"} <= set(LINKS.findall((ROOT / "README.md").read_text()))


WITHOUT_JSON = {
    **dict.fromkeys(("new", "continue", "join", "fork", "debug", "lease", "tensorboard"), "does something"),
    **dict.fromkeys(("stop", "kill", "hold", "release", "priority", "drain"), "an order"),
    "attach": "a terminal's view of what `logs` and `show` read",
    "logs": "prints the bytes as they are",
    "plot": "draws a picture",
    "run": "does something; --json belongs to --explain",
}
"""Commands that a program need not read, each with the reason."""


def takes_json(command: click.Command) -> bool:
    """Whether it does, or one of those below it."""
    below = getattr(command, "commands", {}).values()
    return any("--json" in option.opts for option in command.params) or any(map(takes_json, below))


def test_every_command_that_reads_takes_json_and_the_pages_say_so() -> None:
    commands = {name: program.get_command(click.Context(program), name) for name in COMMANDS}
    taking = {name for name, command in commands.items() if command is not None and takes_json(command)}
    reads = set(COMMANDS) - set(WITHOUT_JSON)
    assert taking - {"run"} == reads, "give it --json, or the reason in WITHOUT_JSON"
    shown = {name: f"`{name}`" for name in COMMANDS} | {"lab": "`lab status`", "server": "`server status`"}
    for page in ("README.md", "CONTRIBUTING.md", "docs/guide.md"):
        lines = (ROOT / page).read_text().splitlines()
        (line,) = (one for one in lines if "--json`" in one and "`verify`" in one)
        assert {name for name in COMMANDS if shown[name] in line} >= reads, page


def test_the_hook_and_the_gan_train(tmp_path: Path) -> None:
    hook, gan = run_block("class Rules"), run_block("class Gan")
    runner = gan["Gan"]()
    runner.build()
    data = torch.randn(32, 2)
    loader = roost.Loader(list(data), plan=roost.BatchPlan(32, 8))
    from roost.train.hooks import Records

    rules = hook["Rules"]()
    rules.every = "2"
    trainer = roost.Trainer(
        runner,
        {"train": loader},
        roost.Stepper(runner.optimizers()),
        hooks=[Records(tmp_path / "records", 1), rules],
        checkpoints=roost.Checkpoints(tmp_path / "checkpoints"),
        until="2ep",
    )
    assert trainer.fit() == "finished"
    assert {"train/critic_loss", "train/generator_loss"} <= trainer.row.keys()
    assert "Rules" in trainer.plan()


def test_the_line_about_the_time_names_all_its_parts() -> None:
    (line,) = (block for block in blocks("text") if " samples/s  " in block)
    parts = "  ".join(rf"{part} \d+%" for part in (*performance.PARTS, performance.OTHER))
    assert re.fullmatch(rf"[\w ]+: [\d.]+s, [\d,]+ samples/s  {parts}  [\w ]+ \d+ MB\n", line)


def test_the_predictions_are_made(tmp_path: Path) -> None:
    names = run_block("def predict")
    (tmp_path / "rows.txt").write_text("1 2 3\n4 5 6\n")
    samples = names["Dataset"]({}).predict(str(tmp_path / "rows.txt"))
    runner = names["Runner"]()
    runner.net = torch.nn.Linear(3, 10)
    with Predicted(tmp_path) as written:
        written.add(runner.predict(torch.stack(samples)), 2, first=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logits.npy", "predictions.jsonl", "rows.txt"]


def test_the_analysis_runs(tmp_path: Path) -> None:
    made = trained(tmp_path)
    found = roost.analyze(made.path, run_block("def experience")["experience"], device="cpu")
    assert found.keys() == {"median", "step"} and found["step"] == made.store().line()[-1].step
    assert (made.path / "analysis" / "1" / "losses.json").exists()
