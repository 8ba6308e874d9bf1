"""The examples in docs/ are run."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import shlex
from collections.abc import Iterable
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
from roost.config.objects import unload_project
from roost.config.settings import parse_settings
from roost.package.package_draft import prepare_training
from roost.package.results import initial_weights, time_breakdown
from roost.project import data_loaders, native_project, trainer_assembly
from roost.project.package_context import package_code
from roost.shell.verbs import VERBS, parse
from roost.train.optim.optimizer_config import build_optimizers, describe_optimizers
from roost.worker.results.prediction_writer import PredictionWriter
from tests.project.trained import trained
from tests.worker.analyzer.analyzers import started as started_analyzer

ROOT = Path(__file__).parents[1]
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))
}
PAGES |= {name: (ROOT / name).read_text() for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")}
API = PAGES["docs/python-api.md"]
COMING_FROM = PAGES["docs/coming-from.md"]
GUIDES = {name: text for name, text in PAGES.items() if name.startswith("docs/guide/")}
GUIDE = "\n".join(GUIDES.values())


def blocks_of(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def blocks(language: str) -> list[str]:
    return blocks_of(GUIDE, language)


def executed(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "docs/guide", "exec"), names)  # noqa: S102  - our own guide: that its blocks run is the test
    return names


def run_block(holds: str) -> dict[str, Any]:
    """Runs the one Python block that holds a text; returns what it defines."""
    (text,) = (block for block in blocks("python") if holds in block)
    return executed(text)


@pytest.mark.parametrize(
    "text", [*blocks("python"), *blocks_of(API, "python"), *blocks_of(COMING_FROM, "python")]
)
def test_every_python_block_runs(text: str) -> None:
    assert "roost" in executed(text)


def test_the_module_of_another_tool_is_a_runner() -> None:
    (text,) = (block for block in blocks_of(COMING_FROM, "python") if "class LitClassifier" in block)
    runner = executed(text)["LitClassifier"]()
    runner.build()
    batch = torch.zeros(5, 4), torch.tensor([0, 1, 2, 0, 1])
    assert runner.loss(batch)["loss"].ndim == 0 and runner.evaluate(batch)["loss"].shape == (5,)
    assert runner.predict(batch)["label"].shape == (5,)


def test_the_config_is_understood(tmp_path: Path) -> None:
    (config,) = (block for block in blocks("yaml") if "include: [model.yaml]" in block)
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "model.yaml").write_text("width: 32\n")
    loaded = layers.load(tmp_path / "config.yaml")
    settings = parse_settings(loaded.values)
    assert loaded.values["width"] == 64 and settings.checkpoint.every == ["1ep", "10min"]


@pytest.mark.parametrize(
    "text", [*blocks("yaml"), *blocks_of(COMING_FROM, "yaml")], ids=lambda text: text.split(":")[0]
)
def test_every_config_is_understood(text: str, tmp_path: Path) -> None:
    own = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": "1"}
    lines = [f"{key}: {value}" for key, value in own.items() if not re.search(rf"(?m)^{key}:", text)]
    (tmp_path / "config.yaml").write_text("\n".join([*lines, text]))
    (tmp_path / "model.yaml").write_text("width: 32\n")
    loaded = layers.load(tmp_path / "config.yaml")
    parse_settings(loaded.values, where=loaded.where)


COMMAND_LINES = [
    line
    for text in PAGES.values()
    for block in [*blocks_of(text, "bash"), *blocks_of(text, "ipython")]
    for line in re.findall(r"roost [a-z](?:'[^'\n]*'|[^\n)'])*", block)
]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_and_its_options_are_there(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    command = program.get_command(click.Context(program), name)
    assert command is not None
    command.make_context(name, arguments)


VERB_LINES = [
    line
    for block in blocks_of(PAGES["docs/guide/shells.md"], "text")
    for line in re.findall(r"(?m)^(?:roost|local)[^>\n]*> (.*)$", block)
]


@pytest.mark.parametrize("line", VERB_LINES)
def test_every_line_of_a_shell_is_understood(line: str) -> None:
    assert parse(line) is not None


def test_every_verb_is_in_the_guide_of_the_shells() -> None:
    found = {line.split()[0] for line in VERB_LINES} | {"help"}
    assert found >= {verb.name for verb in VERBS}


def test_the_optimizers_are_built(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "Schedules.py:noam" in block)
    (function,) = re.findall(r"`(def noam.*?)`", GUIDE)
    (tmp_path / "Schedules.py").write_text(function)
    (tmp_path / "config.yaml").write_text(f"runner: a.py:A\ndataset: b.py:B\nmax_steps: 500\n{section}")
    body = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    body.norm = torch.nn.LayerNorm(2)
    module = torch.nn.ModuleDict({"body": body, "head": torch.nn.Linear(2, 1)})
    asked = parse_settings(layers.load(tmp_path / "config.yaml").values).optimizers
    totals = {"total_steps": 500, "steps_per_epoch": 50}
    found = build_optimizers(module, asked, totals=totals, root=tmp_path)
    unload_project(tmp_path)
    assert [len(optim.optimizer.param_groups) for optim in found.values()] == [3, 1]
    assert len(describe_optimizers(found)) == 2


def test_the_weights_to_begin_with_are_understood() -> None:
    asked = [block for block in blocks("yaml") if "init_from:" in block]
    base = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1}
    found = [parse_settings({**base, **yaml.safe_load(block)}) for block in asked]
    several = [one for settings in found for _, one in initial_weights.entries(settings)]
    assert [one.strict for one in several] == [True, True, False] and found[0].freeze == ["net.features.*"]
    runner = run_block("class Finetuned")["Finetuned"]()
    runner.build()
    runner.train()
    assert runner.net["head"].training and not runner.net["body"][1].training


def test_the_data_is_read(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "sort_by_length" in block)
    (tmp_path / "config.yaml").write_text(f"runner: a.py:A\ndataset: b.py:B\nmax_steps: 1\n{section}")
    settings = parse_settings(layers.load(tmp_path / "config.yaml").values)
    data = native_project.check_data(run_block("class Speech")["Dataset"]({}).build(), roost.Dataset)
    made = data_loaders.build_loaders(data, settings, device=torch.device("cpu"), batches_per_step=2)
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
        settings = parse_settings({**asked, "data": {"batch_size": 4, **own}})
        made = data_loaders.build_loaders(
            native_project.check_data(names[name], roost.Dataset), settings, device=torch.device("cpu")
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


def test_the_averages_are_understood(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "averages:" in block)
    (tmp_path / "config.yaml").write_text(f"runner: a.py:A\ndataset: b.py:B\nmax_steps: 1\n{section}")
    settings = parse_settings(layers.load(tmp_path / "config.yaml").values)
    assert list(settings.averages) == ["ema", "swa"] and settings.averages["swa"].start == "5ep"


def test_the_run_that_is_yaml_alone(tmp_path: Path) -> None:
    (section,) = (block for block in blocks("yaml") if "sklearn.datasets.load_digits" in block)
    (code,) = (block for block in blocks("python") if "class Doubts" in block)
    (tmp_path / "config.yaml").write_text(section)
    (tmp_path / "Own.py").write_text(code)
    config = layers.load(tmp_path / "config.yaml", overrides=["channels=3", "max_epochs=1"])
    made = prepare_training(config).create("one")
    with package_code(made):
        experiment = native_project.load(made, project=str(tmp_path), device="cpu")
        trainer = trainer_assembly.assemble(experiment, made, session=made.new_session({}))
        assert trainer.fit() == "finished"
    assert {"valid/loss", "valid/label", "valid/size", "valid/hits", "valid/f1"} <= trainer.results.keys()
    assert experiment.runner.state_dict()["model.0.weight"].shape == (3, 1, 3, 3)


LINKS = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")


def anchors(text: str, level: str = "#+") -> list[str]:
    headings = re.findall(rf"(?m)^{level} (.*)$", re.sub(r"(?s)```.*?```", "", text))
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("name", PAGES)
def test_what_is_linked_exists(name: str) -> None:
    folder = (ROOT / name).parent
    for link, anchor in LINKS.findall(PAGES[name]):
        target = folder / link if link else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), (link, anchor)


@pytest.mark.parametrize("name", [*GUIDES, "docs/python-api.md", "docs/coming-from.md"])
def test_a_page_begins_with_what_the_reader_can_do_and_its_contents(name: str) -> None:
    head, *_ = PAGES[name].split("\n## ")
    assert head.split("\n\n")[1].startswith("After this page you can ")
    contents = [anchor for link, anchor in LINKS.findall(head) if not link]
    assert contents in ([], anchors(PAGES[name], "##"))


def test_the_places_of_contributing_exist() -> None:
    """The table "Where things are": each file and folder that its second column names."""
    table = PAGES["CONTRIBUTING.md"].partition("## Where things are")[2].partition("\n## ")[0]
    rows = [line for line in table.split("\n") if line.startswith("|")]
    places = re.findall(r"`([a-z_/]+(?:/|\.py))`", "\n".join(rows))
    assert len(places) > 40
    homes = (ROOT / "src" / "roost", ROOT / "src" / "roost" / "supervisor")
    assert [place for place in places if not any((home / place).exists() for home in homes)] == []


def test_readme_is_short_and_links_every_page() -> None:
    linked = {link for link, _ in LINKS.findall(PAGES["README.md"])}
    pages = {name for name in PAGES if not name.startswith("docs/decisions/")} - {"README.md"}
    assert pages | {"docs/decisions/README.md", "examples/plain_loop.py", "docs/curves.png"} <= linked
    assert len(PAGES["README.md"].splitlines()) <= 140


@pytest.mark.parametrize("name", [*GUIDES, "docs/python-api.md", "README.md"])
def test_the_prose_keeps_to_the_glossary(name: str) -> None:
    idiom = (
        "tells?|told|whoever|nobody|somebody|whom|goes on|going on|stands|anew|beside|by itself|came of it"
    )
    assert not re.findall(rf"(?i)\b(?:{idiom})\b", re.sub("`.*?`", "", PAGES[name]))
    assert not re.findall(r"\broost\.(?!(?:api|compat)\b)[a-z]\w*\.\w+", PAGES[name]), "only public names"


CLASSES = (
    roost.Runner,
    roost.Dataset,
    roost.Data,
    roost.Hook,
    roost.Phase,
    roost.Trainer,
    roost.Package,
    roost.ScriptRun,
)


def on_the_page(name: str) -> dict[str, str | None]:
    """The entries of a class on the page: the arguments of a method, None for an attribute."""
    section = API.split(f"\n## {name}\n")[1].split("\n## ")[0]
    entries = re.findall(r"(?m)^- `(\w+)(\(.*?\))?`", section)
    return {entry: arguments or None for entry, arguments in entries}


def parameters(function: Any) -> list[str]:
    """Names with their stars, as Python writes them in a definition; no self."""
    given = list(inspect.signature(function).parameters.values())
    marks: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [marks.get(one.kind, "") + one.name for one in given if one.name not in ("self", "cls")]


def written(arguments: str) -> list[str]:
    args = ast.parse(f"def f({arguments}): ...").body[0].args  # type: ignore[attr-defined]
    stars = [*(["*" + args.vararg.arg] if args.vararg else [])]
    names = [one.arg for one in args.args] + stars + [one.arg for one in args.kwonlyargs]
    return names + (["**" + args.kwarg.arg] if args.kwarg else [])


def public(kind: type) -> dict[str, Any]:
    own = [base for base in kind.__mro__ if base.__module__.startswith("roost")]
    return {name: value for base in reversed(own) for name, value in vars(base).items() if name[0] != "_"}


def instance(kind: type, folder: Path) -> Any:
    if kind is roost.Trainer:
        runner = torch.nn.Linear(1, 1)
        loader = roost.Loader([1], plan=roost.BatchPlan(1, 1))
        runner.attach = lambda trainer: None  # type: ignore[assignment]
        return roost.Trainer(
            runner, {"train": loader}, roost.Stepper(torch.optim.SGD(runner.parameters())), until=1
        )
    if kind is roost.ScriptRun:
        with roost.init(root=folder) as run:
            return run
    given: dict[type, Iterable[Any]] = {roost.Dataset: [{}], roost.Data: [[]], roost.Package: [folder]}
    return roost.Phase if kind is roost.Phase else kind(*given.get(kind, []))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_page_of_the_python_api_is_whole_and_true(kind: type, tmp_path: Path) -> None:
    entries, members = on_the_page(kind.__name__), public(kind)
    assert set(members) - set(entries) == set(), "missing on docs/python-api.md"
    one = instance(kind, tmp_path)
    for name, arguments in entries.items():
        member = members.get(name)
        function = getattr(member, "__func__", member)
        assert inspect.isfunction(function) == (arguments is not None), name
        if arguments is not None:
            assert written(arguments[1:-1]) == parameters(function), name
        elif kind is not roost.Phase:
            assert member is not None or name in vars(one) or name in members, name


def test_the_page_of_the_python_api_has_every_exported_name() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)(?:\((.*?)\))?` \|", API.split("\n## Other names\n")[1])
    assert {name for name, _ in rows} | {kind.__name__ for kind in CLASSES} == set(dir(roost)) - {
        "__version__"
    }
    for name, arguments in rows:
        expected = parameters(getattr(roost, name))
        shown = written(re.sub(r"(, |^)\.\.\.$", "", arguments.replace("=...", "=None")))
        assert shown == expected if "..." not in arguments else set(shown) <= set(expected), name


def test_the_examples_in_files_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "averaged_weights.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("updates 3  ")
    main = runpy.run_path(str(ROOT / "examples" / "own_trainer.py"))["main"]
    assert [main(tmp_path), main(tmp_path)] == ["finished", "finished"]
    assert (tmp_path / "checkpoints").is_dir()


def test_the_error_of_the_guide_is_the_real_one(tmp_path: Path) -> None:
    (shown,) = (block for block in blocks("text") if block.startswith("error: "))
    (tmp_path / "config.yaml").write_text("runner: a.py:A\ndataset: b.py:B\nmax_epoch: 5\n")
    loaded = layers.load(tmp_path / "config.yaml")
    with pytest.raises(roost.RoostError) as raised:
        parse_settings(loaded.values, where=loaded.where)
    assert raised.value.summary in shown and f"fix: {raised.value.fix}" in shown


def test_the_first_project_computes() -> None:
    names = run_block("points.sum(1) > 1")
    data = names["Dataset"]({}).build()
    runner = names["Runner"]({}, data.info)
    runner.build()
    batch = torch.utils.data.default_collate(data.train[:8])
    assert runner.loss(batch)["loss"].shape == () and runner.evaluate(batch)["loss"].shape == (8,)


WITHOUT_JSON = {
    **dict.fromkeys(
        ("new", "convert", "push", "continue", "join", "fork", "rerun", "debug", "lease", "tensorboard"),
        "does something",
    ),
    **dict.fromkeys(("stop", "kill", "hold", "release", "priority", "drain"), "an order"),
    **dict.fromkeys(("star", "unstar", "rm", "gc", "prune"), "does something; `du --json` has the sizes"),
    **dict.fromkeys(("tag", "note"), "an order; `ls --json` has the labels"),
    **dict.fromkeys(("simple", "local", "client"), "for people; the Python client is for programs"),
    "attach": "a terminal's view of what `logs` and `show` read",
    "logs": "prints the bytes as they are",
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
    for page in ("CONTRIBUTING.md", "docs/guide/comparing.md"):
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
    blocks = blocks_of(PAGES["docs/guide/monitoring.md"], "text")
    (line,) = (block for block in blocks if " samples/s  " in block)
    parts = "  ".join(rf"{part} \d+%" for part in (*time_breakdown.PARTS, time_breakdown.OTHER))
    assert re.fullmatch(rf"[\w ]+: [\d.]+s, [\d,]+ samples/s  {parts}  [\w ]+ \d+ MB\n", line)


def test_the_predictions_are_made(tmp_path: Path) -> None:
    names = run_block("def predict")
    (tmp_path / "rows.txt").write_text("1 2 3\n4 5 6\n")
    samples = names["Dataset"]({}).predict(str(tmp_path / "rows.txt"))
    runner = names["Runner"]()
    runner.net = torch.nn.Linear(3, 10)
    with PredictionWriter(tmp_path) as written:
        written.add(runner.predict(torch.stack(samples)), 2, first=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logits.npy", "predictions.jsonl", "rows.txt"]


def test_the_script_of_an_analyzer_runs_twice(tmp_path: Path) -> None:
    (source,) = (block for block in blocks("python") if "AnalyzeScripts/errors.py" in block)
    with started_analyzer(trained(tmp_path)) as analyzer:
        for _ in range(2):
            found, value = analyzer.run(source)
            assert found.state == "succeeded" and len(value["worst"]) == 3, analyzer.text()


def test_the_analysis_runs(tmp_path: Path) -> None:
    made = trained(tmp_path)
    found = roost.analyze(made.path, run_block("AnalyzeScripts/spread.py")["experience"], device="cpu")
    assert found.keys() == {"median", "step"} and found["step"] == made.store().lineage()[-1].step
    assert (made.path / "analysis" / "1" / "losses.json").exists()
