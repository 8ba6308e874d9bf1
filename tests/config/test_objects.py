"""Objects from class paths: allowed paths, imports of files, checks of arguments."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import ConfigError
from roost.config.objects import build, build_callable, locate, unload_project
from tests.messages import Messages


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project whose modules are gone again after the test."""
    path = list(sys.path)
    files = {
        "Model/Net.py": "class Net:\n    def __init__(self, width, depth=2):\n"
        "        self.width, self.depth = width, depth\n",
        "Model/Runner.py": "import helper\nfrom Model.Net import Net\nfrom .Net import Net as Same\n\n"
        "class Runner(Net):\n    kind = helper.KIND\n\n"
        "def make(**kwargs):\n    return kwargs\n\nCONSTANT = 3\n",
        "Model/helper.py": "KIND = 'beside'\n",
        "Importing.py": "import gc\nclass Paused:\n    collects = gc.isenabled()\n",
        "Hooks.py": "class Rules: ...\nclass Others: ...\n",
        "broken.py": "def f(:\n",
        "lacking.py": "import module_that_is_not_there\n",
        "failing.py": "raise ValueError('mine')\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    unload_project(tmp_path)
    assert sys.path == path


def refusal(path: str, root: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        locate(path, root=root, setting="runner", where="config.yaml:1")
    assert caught.value.exit_code == 4
    assert (caught.value.setting, caught.value.where) == ("runner", "config.yaml:1")
    return str(caught.value)


# --- libraries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "torch.optim.AdamW",
        "torch.optim.lr_scheduler.CosineAnnealingLR",
        "torch.nn.Linear",
        "torch.nn.init.ones_",
        "torch.nn.functional.relu",
        "torch.optim.adamw.AdamW",
        "torch.nn.modules.linear.Linear",
    ],
)
def test_libraries(path: str) -> None:
    assert getattr(locate(path), "__name__", None) == path.rpartition(".")[2]


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "sys.exit",
        "subprocess.Popen",
        "builtins.eval",
        "posix.system",
        "importlib.import_module",
        "torch.load",
        "torch.hub.load",
        "torch.utils.cpp_extension.load",
        "torch.nnx.Linear",
        "torch",
        "torch.optim",
        "roost.config.objects.locate",
        "eval",
        "",
        "Model.Net.Net",
        "this.module.is.not.there",
        ".torch.optim.Adam",
    ],
)
def test_everything_else_is_refused(path: str, messages: Messages) -> None:
    assert repr(path) in refusal(path)
    with pytest.raises(ConfigError) as refused:
        locate(path)
    messages.check(refused.value.detail)  # what it proposes depends on what is loaded


@pytest.mark.parametrize(
    "path",
    [
        "torch.optim.adam.torch.hub.load",
        "torch.nn.modules.module.functools.partial",
        "torch.optim.optimizer.OrderedDict",
        "torch.nn.Linear.__init__",
        "torch.nn.Linear.__class__",
        "torch.optim.Adam.__init__.__globals__",
        "torch.optim..Adam",
        "torch.optim.Adam.step.x y",
        "torch.optim.adam",
        "torch.nn.modules.module.torch.nn.Linear",
    ],
)
def test_no_way_leads_out_of_a_library(path: str) -> None:
    refusal(path)


def test_refusal_comes_before_any_import() -> None:
    code = """
        import sys
        from roost.base.errors import ConfigError
        from roost.config.objects import locate
        before = set(sys.modules)
        for path in ("antigravity.x", "this.s", "torch.hub.load", "torch.optimx.Adam", "torch.optim._x.y"):
            try:
                locate(path)
            except ConfigError:
                continue
            raise SystemExit(path)
        raise SystemExit(str(sorted(set(sys.modules) - before)) if set(sys.modules) - before else 0)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_project_is_imported_while_the_collector_pauses(project: Path) -> None:
    """Which is a quarter of the CPU time of an import."""
    assert not locate("Importing.py:Paused", root=project, setting="runner").collects  # type: ignore[attr-defined]
    assert gc.isenabled()


def test_floors_0_and_1_do_not_import_torch() -> None:
    code = """
        import sys
        import roost.base.config_files, roost.base.text.suggestions, roost.config.interpolation
        import roost.config.layers, roost.config.objects, roost.config.settings
        raise SystemExit("torch" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)]).returncode == 0


def test_unknown_names_of_a_library(messages: Messages) -> None:
    message = refusal("torch.optim.AdmW")
    messages.check(message)
    assert "'AdmW'" in message and "'torch.optim.AdmW'" in message
    assert "'AdamW'" in message
    message = refusal("torch.optim.lr_schedular.StepLR")
    messages.check(message)
    assert "torch.optim" in message and "'lr_schedular'" in message
    message = refusal("torch.optim.StepLR")
    messages.check(message)
    assert "torch.optim.lr_scheduler.StepLR" in message


def test_a_bare_name_gets_its_path(messages: Messages) -> None:
    locate("torch.optim.lr_scheduler.StepLR")  # names are looked for in what is loaded alone
    message = refusal("AdamW")
    messages.check(message)
    assert "'AdamW'" in message
    assert "torch.optim.AdamW" in message and "torch.nn" in message
    message = refusal("CosineAnealingLR")
    messages.check(message)
    assert "torch.optim.lr_scheduler.CosineAnnealingLR" in message
    message = refusal("optim.Adamw")
    messages.check(message)
    assert "torch.optim.AdamW" in message
    message = refusal("timm.optim.Lamb")
    assert "Model/Net.py:Net" in message


def test_a_library_that_is_not_installed(tmp_path: Path) -> None:
    code = """
        from roost.config.objects import locate
        import sys
        sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry]
        locate("torchmetrics.Accuracy")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert "ConfigError" in done.stderr and "pip install torchmetrics" in done.stderr


# --- files of the project -----------------------------------------------------------------------------


def test_files_are_modules_below_the_root(project: Path) -> None:
    runner = locate("Model/Runner.py:Runner", root=project)
    assert runner.__module__ == "Model.Runner"
    assert runner.kind == "beside"  # type: ignore[attr-defined]
    assert issubclass(runner, locate("Model/Net.py:Net", root=project))  # type: ignore[arg-type]
    assert sys.path[:2] == [str(project), str(project / "Model")]
    assert locate("Hooks.py:Rules", root=project).__module__ == "Hooks"
    assert sys.path[0] == str(project) and sys.path.count(str(project)) == 1
    assert callable(locate("Model/Runner.py:make", root=project))


def test_the_root_is_the_working_folder_if_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert locate("Hooks.py:Rules").__module__ == "Hooks"


def test_a_dotted_path_of_a_project_file_gets_the_right_form(
    project: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.chdir(project)
    message = refusal("Model.Net.Net")
    messages.check(message)
    assert "Model/Net.py:Net" in message


def test_bad_files(project: Path, messages: Messages) -> None:
    message = refusal("Model/Nett.py:Net", project)
    messages.check(message)
    assert "Model/Nett.py" in message
    assert "Model/Net.py:Net" in message
    message = refusal("Hooks.py:Rule", project)
    messages.check(message)
    assert "'Rule'" in message and "'Hooks.py:Rule'" in message
    assert "'Rules'" in message
    message = refusal("Model/helper.py:X", project)
    messages.check(message)
    assert "Model/helper.py" in message and "'X'" in message
    message = refusal("Model/Runner.py:maek", project)
    messages.check(message)
    assert "'make'" in message
    messages.check(refusal("Model/Runner.py:CONSTANT", project))
    messages.check(refusal("../x.py:X", project))
    messages.check(refusal("/etc/x.py:X", project))
    messages.check(refusal("Model/../../x.py:X", project))
    messages.check(refusal("my-model/Net.py:Net", project))
    messages.check(refusal("Hooks.py:", project))
    messages.check(refusal("Hooks.py:Rules.__init__", project))


def test_errors_of_the_projects_own_code_pass_through(project: Path) -> None:
    with pytest.raises(SyntaxError):
        locate("broken.py:f", root=project)
    with pytest.raises(ModuleNotFoundError, match="module_that_is_not_there"):
        locate("lacking.py:f", root=project)
    with pytest.raises(ValueError, match="mine"):
        locate("failing.py:f", root=project)
    (project / "refusing.py").write_text(
        "from roost.base.errors import ConfigError\nraise ConfigError('my own')\n"
    )
    with pytest.raises(ConfigError, match=r"^my own$"):
        locate("refusing.py:f", root=project, setting="runner")


def test_an_installed_module_of_the_same_name_is_not_taken_for_the_projects(
    project: Path, messages: Messages
) -> None:
    (project / "json").mkdir()
    (project / "json" / "Net.py").write_text("class Net: ...\n")
    message = refusal("json/Net.py:Net", project)
    assert " json " in message and "json/__init__.py" in message
    for name in ("pytest", "this"):
        (project / f"{name}.py").write_text("class Net: ...\n")
        message = refusal(f"{name}.py:Net", project)
        assert f" {name} " in message and f"{name}.py" in message
    messages.check(message)


def test_a_file_may_have_the_name_of_its_folder(project: Path) -> None:
    (project / "Dataset").mkdir()
    (project / "Dataset" / "Dataset.py").write_text("class Dataset: ...\n")
    (project / "Dataset" / "other.py").write_text("from Dataset.Dataset import Dataset\n")
    made = locate("Dataset/Dataset.py:Dataset", root=project)
    assert made.__module__ == "Dataset.Dataset"
    assert locate("Dataset/other.py:Dataset", root=project) is made


def test_packages_with_an_init_file_run_it_once(project: Path) -> None:
    (project / "nets" / "deep").mkdir(parents=True)
    (project / "nets" / "__init__.py").write_text("count = 0\n")
    (project / "nets" / "deep" / "one.py").write_text(
        "import nets\nfrom ..small import Small\n\nnets.count += 1\n"
        "class One(Small):\n    count = nets.count\n"
    )
    (project / "nets" / "small.py").write_text("class Small: ...\n")
    for _ in range(2):
        one = locate("nets/deep/one.py:One", root=project)
        assert one.__module__ == "nets.deep.one" and one.count == 1  # type: ignore[attr-defined]


def test_a_module_that_failed_is_tried_again(project: Path) -> None:
    with pytest.raises(ValueError, match="mine"):
        locate("failing.py:F", root=project)
    (project / "failing.py").write_text("class F:\n    fixed = True\n")
    assert locate("failing.py:F", root=project).fixed  # type: ignore[attr-defined]


def test_two_projects_in_one_process(
    project: Path, tmp_path_factory: pytest.TempPathFactory, messages: Messages
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "Hooks.py").write_text("class Rules:\n    other = True\n")
    assert not hasattr(locate("Hooks.py:Rules", root=project), "other")
    messages.check(refusal("Hooks.py:Rules", other))
    unload_project(project)
    assert locate("Hooks.py:Rules", root=other).other  # type: ignore[attr-defined]
    unload_project(other)
    assert "Hooks" not in sys.modules and str(other) not in sys.path


def test_forgetting_keeps_what_lies_in_a_virtual_environment(project: Path) -> None:
    packages = project / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "roost_test_library.py").write_text("")
    sys.path.append(str(packages))
    try:
        __import__("roost_test_library")
        unload_project(project)
        assert "roost_test_library" in sys.modules and str(packages) in sys.path
    finally:
        sys.path.remove(str(packages))
        del sys.modules["roost_test_library"]


# --- building -----------------------------------------------------------------------------------------


def test_build_passes_arguments_of_both_sides(project: Path) -> None:
    net = build({"class": "Model/Net.py:Net", "depth": 5}, project, width=3)
    assert (net.width, net.depth) == (3, 5)
    made = build({"class": "Model/Runner.py:make", "root": "data", "x": 1}, project, where="w")
    assert made == {"root": "data", "x": 1, "where": "w"}
    linear = build({"class": "torch.nn.Linear", "in_features": 2, "out_features": 3, "bias": False})
    optimizer = build({"class": "torch.optim.AdamW", "lr": 1e-3}, params=linear.parameters())
    assert optimizer.defaults["lr"] == 1e-3


def bad_build(spec: dict[str, object], root: Path | None = None, **runtime: object) -> str:
    with pytest.raises(ConfigError) as caught:
        build(spec, root, "made.it", lambda key: f"config.yaml:7 {key}", **runtime)
    assert caught.value.exit_code == 4 and str(caught.value.where).startswith("config.yaml:7 made.it")
    assert str(caught.value.setting).startswith("made.it")
    return str(caught.value)


def test_wrong_arguments_name_argument_class_and_signature(project: Path, messages: Messages) -> None:
    message = bad_build({"class": "torch.optim.AdamW", "lrr": 0.1}, params=[])
    assert all(
        fact in message for fact in ("made.it.lrr", "torch.optim.AdamW", "'lrr'", "config.yaml:7", "0.1")
    )
    assert "'lr'" in message
    message = bad_build({"class": "Model/Net.py:Net"}, project)
    messages.check(message)
    assert all(fact in message for fact in ("made.it.class", "Model/Net.py:Net", "'width'"))
    assert "depth=2" in message
    message = bad_build({"class": "torch.optim.AdamW", "params": 1}, params=[])
    assert "made.it.params" in message and "torch.optim.AdamW" in message and "'params'" in message
    message = bad_build({"class": "Model/Net.py:Net", "width": 1}, project, params=["not shown"])
    messages.check(message)
    assert all(fact in message for fact in ("made.it.class", "Model/Net.py:Net", "'params'"))
    assert "not shown" not in message


def test_values_that_a_library_refuses() -> None:
    message = bad_build({"class": "torch.nn.Linear", "in_features": "x", "out_features": 2})
    assert all(fact in message for fact in ("made.it.in_features", "config.yaml:7", "'x'"))
    message = bad_build({"class": "torch.nn.Linear", "in_features": 2, "out_features": -1})
    assert all(
        fact in message
        for fact in ("made.it.out_features", "torch.nn.Linear", "RuntimeError: Trying to create")
    )
    linear = build({"class": "torch.nn.Linear", "in_features": 2, "out_features": 3})
    message = bad_build({"class": "torch.optim.SGD", "lr": -1}, params=linear.parameters(), fused=True)
    assert all(fact in message for fact in ("made.it.lr", "torch.optim.SGD", "Invalid learning rate: -1"))
    both = {"class": "torch.optim.SGD", "momentum": 0.9, "nesterov": True, "dampening": 0.1}
    message = bad_build(both, params=[*linear.parameters()], fused=True)
    assert message.startswith("made.it: ") and "torch.optim.SGD" in message and "Nesterov" in message
    assert "{'momentum': 0.9, 'nesterov': True, 'dampening': 0.1}" in message, "not what roost gave"


def test_objects_and_functions_inside(project: Path) -> None:
    (project / "own.py").write_text(
        "import functools\n\n"
        "def double(x):\n    return 2 * x\n\n"
        "class Outer:\n    def __init__(self, root, inner, others=(), f=None, named=None):\n"
        "        self.root, self.inner, self.others, self.f, self.named = root, inner, others, f, named\n\n"
        "class Inner:\n    def __init__(self, root, size=1):\n        self.root, self.size = root, size\n\n"
        "class Plain:\n    pass\n\n"
        "ready = functools.partial(double, 4)\n"
    )
    root = object()
    spec = {
        "class": "own.py:Outer",
        "inner": {"class": "own.py:Inner", "size": 3},
        "others": [{"class": "own.py:Plain"}, 2, "a text. own.py:double"],
        "f": "own.py:double",
        "named": {"a": "torch.nn.functional.relu", "b": "own.py:ready", "c": "torch.nn is a library"},
    }
    made = build(spec, project, root=root)
    assert (made.inner.root, made.inner.size) == (root, 3), "what the outer one is given, the inner one takes"
    assert type(made.others[0]).__name__ == "Plain"
    assert made.others[1:] == [2, "a text. own.py:double"]
    assert made.f(3) == 6 and made.named["a"].__name__ == "relu" and made.named["b"]() == 8
    assert made.named["c"] == "torch.nn is a library"


def test_what_is_wrong_inside_is_named_with_its_own_key(project: Path, messages: Messages) -> None:
    (project / "own.py").write_text("def f(x, **others):\n    return x\n")
    message = bad_build({"class": "own.py:f", "x": [1, {"class": "torch.nn.Linaer"}]}, project)
    messages.check(message)
    assert all(fact in message for fact in ("'Linear'", "made.it.x.1.class", "torch.nn", "'Linaer'"))
    message = bad_build({"class": "own.py:f", "x": {"y": "own.py:g"}}, project)
    messages.check(message)
    assert all(fact in message for fact in ("made.it.x.y", "'g'", "config.yaml:7", "'own.py:g'"))
    message = bad_build({"class": "own.py:f", "x": {"class": "torch.nn.Linear", "in_features": 3}}, project)
    assert all(fact in message for fact in ("made.it.x.class", "torch.nn.Linear", "'out_features'"))


def test_an_error_of_the_projects_function_inside_a_librarys_class_passes_through(project: Path) -> None:
    (project / "own.py").write_text("def f(x):\n    raise ValueError('inside')\n")
    linear = build({"class": "torch.nn.Linear", "in_features": 2, "out_features": 3})
    optimizer = build({"class": "torch.optim.SGD"}, params=linear.parameters())
    spec = {"class": "torch.optim.lr_scheduler.LambdaLR", "lr_lambda": "own.py:f"}
    with pytest.raises(ValueError, match=r"^inside$"):
        build(spec, project, optimizer=optimizer)


def test_an_error_inside_the_projects_class_passes_through(project: Path) -> None:
    (project / "own.py").write_text("def f(x):\n    raise TypeError('inside')\n")
    with pytest.raises(TypeError, match="inside"):
        build({"class": "own.py:f", "x": 1}, project)


@pytest.mark.parametrize("spec", [{}, {"lr": 1}, {"class": 3}, {"class": None}])
def test_a_spec_without_a_class(spec: dict[str, object], messages: Messages) -> None:
    messages.check(bad_build(spec))


def test_building_what_may_not_be_named() -> None:
    message = bad_build({"class": "os.system"})
    assert "made.it.class" in message and "'os.system'" in message


# --- any number of arguments --------------------------------------------------------------------------


def test_a_list_of_the_name_of_args_is_spread(project: Path) -> None:
    layer = {"class": "torch.nn.Linear", "in_features": 2, "out_features": 2}
    made = build({"class": "torch.nn.Sequential", "args": [layer, {"class": "torch.nn.ReLU"}, layer]})
    assert [type(part).__name__ for part in made] == ["Linear", "ReLU", "Linear"]
    assert list(made.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    (project / "own.py").write_text("def f(a, *rest, b=3, **more):\n    return a, rest, b, more\n")
    assert build({"class": "own.py:f", "rest": [1, layer["class"]], "a": 0, "c": 5}, project)[0] == 0
    assert build({"class": "own.py:f", "rest": [], "a": 0}, project) == (0, (), 3, {})
    assert build({"class": "own.py:f", "rest": [1, 2], "b": 4}, project, a=7) == (7, (1, 2), 4, {})


def test_what_cannot_be_spread(project: Path, messages: Messages) -> None:
    (project / "own.py").write_text("def f(a=1, *rest):\n    return a, rest\n")
    message = bad_build({"class": "torch.nn.Sequential", "args": 3})
    messages.check(message)
    assert all(fact in message for fact in ("made.it.args", "torch.nn.Sequential", "'args'"))
    message = bad_build({"class": "own.py:f", "rest": [1]}, project)
    messages.check(message)
    assert all(fact in message for fact in ("made.it.rest", "own.py:f", "'a'", "'rest'"))
    message = bad_build({"class": "torch.nn.Sequential", "args": [{"class": "torch.nn.Linaer"}]})
    messages.check(message)
    assert all(fact in message for fact in ("made.it.args.0.class", "torch.nn", "'Linaer'"))
    message = bad_build({"class": "torch.nn.Sequential", "layers": []})
    messages.check(message)
    assert "torch.nn.Sequential" in message and "'layers'" in message


# --- what is called later -----------------------------------------------------------------------------


def test_what_is_called_later(project: Path) -> None:
    (project / "own.py").write_text(
        "def f(x, y, scale=1, other=None):\n    return (x + y) * scale, other\n\n"
        "class Adds:\n    def __init__(self, n): self.n = n\n    def __call__(self, x): return x + self.n\n"
    )
    assert build_callable({"class": "own.py:f"}, project, inputs=2)(1, 2) == (3, None)
    assert (
        build_callable({"class": "own.py:f", "scale": 2, "other": "own.py:f"}, project, inputs=2)(1, 2)[0]
        == 6
    )
    assert build_callable({"class": "own.py:Adds", "n": 3}, project, inputs=1)(4) == 7
    loss = build_callable({"class": "torch.nn.CrossEntropyLoss", "label_smoothing": 0.1}, inputs=2)
    assert loss.label_smoothing == 0.1


def test_a_setting_of_its_own_may_say_how_many_inputs(project: Path) -> None:
    spec = {"class": "torch.nn.MSELoss"}
    with pytest.raises(ConfigError) as refused:
        build_callable(
            spec, project, "it", lambda key: f"line of {key}", inputs=1, inputs_setting="runner.inputs"
        )
    assert (refused.value.setting, refused.value.where) == ("runner.inputs", "line of runner.inputs")
    assert "torch.nn.MSELoss" in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "inputs", "setting", "facts"),
    [
        (
            {"class": "own.py:f"},
            1,
            "it.inputs",
            ["own.py:f"],
        ),
        ({"class": "own.py:f"}, 3, "it.inputs", ["own.py:f"]),
        ({"class": "own.py:f", "x": 1}, 2, "it.inputs", ["own.py:f"]),
        ({"class": "own.py:f", "z": 1}, 2, "it.z", ["own.py:f", "'z'"]),
        ({"class": "own.py:Plain"}, 1, "it.class", ["own.py:Plain"]),
        ({"class": "torch.nn.MSELoss"}, 1, "it.inputs", ["torch.nn.MSELoss"]),
        ({"class": "torch.nn.MSELoss", "reduce": 3, "x": 1}, 2, "it.x", ["torch.nn.MSELoss", "'x'"]),
        ({"class": "torch.nn.functional.mse"}, 2, "it.class", ["torch.nn.functional", "'mse'"]),
    ],
)
def test_what_cannot_be_called_so(
    spec: dict[str, object], inputs: int, setting: str, facts: list[str], project: Path, messages: Messages
) -> None:
    (project / "own.py").write_text("def f(x, y): ...\n\nclass Plain: ...\n")
    with pytest.raises(ConfigError) as caught:
        build_callable(spec, project, "it", lambda key: f"line of {key}", inputs=inputs)
    messages.check(caught.value.summary)
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)
    assert str(caught.value.where).startswith("line of it")
