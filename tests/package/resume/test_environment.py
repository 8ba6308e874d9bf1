"""The environment of a run: secrets are left out, and differences that change bits are described."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import torch

import roost
from roost.base.errors import Refused
from roost.package.resume import environment
from roost.train.accelerators.registry import accelerator_of
from tests.messages import Messages

CPU = accelerator_of("cpu")
STACK = {
    "torch": "2.13.0+cpu", "numpy": "2.4.6", "cuda": None, "cudnn": None, "device": "cpu",
    "ranks": 1, "strategy": "single", "device_name": "Xeon", "threads": 2, "cpu_capability": "AVX512",
    "deterministic": False, "deterministic_warn_only": False, "matmul_precision": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("hf_abcdefghijklmnop", "abcdefgh"),
        ("url = 'https://x?key=ghp_0123456789abcdef'", "0123456789"),
        ("github_pat_11ABCDEFG0_xyz", "ABCDEFG0"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
        ("sk-proj-abcdefghijkl", "abcdefgh"),
        ("xoxb-123456789012-abc", "123456789012"),
        ("--token=s3cr3tvalue", "s3cr3tvalue"),
        ("WANDB_API_KEY=0123abc", "0123abc"),
        ('"api_key": "my secret phrase",', "secret phrase"),
        ("password: 'two words'", "two words"),
        ("aws_secret_access_key = abc/def+ghi", "abc/def"),
        ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        ("HF_TOKEN = abcdefg", "abcdefg"),
        ("git clone https://me:hunter2@example.org/x.git", "hunter2"),
        ("+-----BEGIN RSA PRIVATE KEY-----\n+MIIEow\n+-----END RSA PRIVATE KEY-----\n", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\ncut off MIIE", "MIIE"),
    ],
)
def test_a_secret_is_redacted(text: str, secret: str) -> None:
    redacted = environment.redact(text)
    assert secret not in redacted and "***" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "lr: 0.1", "max_tokens = 512", "tokenizer: bert-base", "token_ids = batch['ids']",
        "task-something-long",
        "python train.py a.b=c", "http://localhost:6006/x", "user@example.org:path", "a secretary",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert environment.redact(text) == text


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("token", True), ("--api-key", True), ("api_key", True), ("my_password", True), ("max_tokens", False),
     ("lr", False), ("", False)],
)  # fmt: skip
def test_what_is_secret_by_its_name(name: str, is_one: bool) -> None:
    assert environment.is_secret(name) == is_one


def test_text_around_a_secret_stays() -> None:
    assert environment.redact("a\nTOKEN=x y\nb") == "a\nTOKEN=*** y\nb"
    assert environment.redact("https://me:pw@host/x") == "https://me:***@host/x"


def test_a_huge_text_is_redacted_in_good_time() -> None:
    assert "hunter2" not in environment.redact(("x" * 100 + "\n") * 20_000 + "password=hunter2")


def test_what_a_run_began_on(tmp_path: Path, messages: Messages) -> None:
    assert environment.read_environment(tmp_path) is None
    found = {"stack": {"threads": 2}}
    (tmp_path / environment.NAME).write_text(json.dumps(found))
    assert environment.read_environment(tmp_path) == found
    for damaged in ("", "[]", '{"stack": {"threads": "x"}}', '{"stack": 3}'):
        (tmp_path / environment.NAME).write_text(damaged)
        with pytest.raises(Refused) as refused:
            environment.read_environment(tmp_path)
        messages.check(refused.value.fix)
        assert refused.value.where == tmp_path / environment.NAME


def test_equal_stacks_do_not_differ() -> None:
    assert environment.stack_differences(STACK, dict(STACK)) == []
    assert environment.stack_differences({}, STACK) == [] == environment.stack_differences(STACK, {})


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("torch", "2.14.0", "2.13.0+cpu", "2.14.0"),
        ("threads", 4, "2", "4"),
        ("cuda", "12.8", "None", "12.8"),
        ("device_name", "H200", "Xeon", "H200"),
        ("cpu_capability", "AVX2", "AVX512", "AVX2"),
        ("device", "cuda", "cpu", "cuda"),
        ("ranks", 3, "1", "3"),
        ("strategy", "fsdp", "single", "fsdp"),
        ("matmul_precision", "tf32", "none", "tf32"),
    ],
)
def test_a_difference_is_described(key: str, value: object, old: str, new: str, messages: Messages) -> None:
    (line,) = environment.stack_differences(STACK, {**STACK, key: value})
    messages.check(line)
    assert old in line and new in line and line.index(old) < line.rindex(new)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hip", "6.4"),
        ("cublas", "12.9.1"),
        ("tf32_override", "0"),
        ("allow_fp16_reduced_precision_reduction", False),
        ("allow_bf16_reduced_precision_reduction", False),
        ("allow_fp16_accumulation", True),
    ],
)
def test_what_changes_bits_on_a_gpu_alone_is_compared(key: str, value: object) -> None:
    gpu = {**STACK, "device": "cuda", key: "another"}
    (line,) = environment.stack_differences(gpu, {**gpu, key: value})
    assert "another" in line and str(value) in line
    older = {name: found for name, found in gpu.items() if name != key}
    assert environment.stack_differences(older, gpu) == [], "an older roost did not record it"


@pytest.mark.parametrize("key", ["nccl", "nccl_algorithm", "nccl_protocol"])
def test_nccl_counts_between_ranks(key: str) -> None:
    one, other = {**STACK, key: "Ring"}, {**STACK, key: "Tree"}
    assert environment.stack_differences(one, other) == []
    several = {"ranks": 2, "strategy": "ddp"}
    (line,) = environment.stack_differences({**one, **several}, {**other, **several})
    assert "Ring" in line and "Tree" in line


def test_before_there_could_be_several_ranks_there_was_one() -> None:
    older = {key: value for key, value in STACK.items() if key not in ("ranks", "strategy")}
    ranks, strategy = environment.stack_differences(older, {**STACK, "ranks": 2, "strategy": "ddp"})
    assert re.findall(r"\d", ranks) == ["1", "2"]
    assert all(fact in strategy for fact in ("single", "ddp"))
    assert environment.stack_differences(older, STACK) == []


def test_the_strategy_of_one_rank_does_not_count() -> None:
    assert environment.stack("cpu", CPU, ranks=1, strategy="ddp") == environment.stack("cpu", CPU)
    found = environment.stack("cpu", CPU, ranks=2, strategy="fsdp")
    assert (found["ranks"], found["strategy"]) == (2, "fsdp")


def test_deterministic_algorithms_count_on_a_gpu(messages: Messages) -> None:
    now = {**STACK, "deterministic": True}
    assert environment.stack_differences(STACK, now) == [], "a reason of its own, where it matters"
    gpu = {"device": "cuda", "cublas_workspace": None}
    found = environment.stack_differences({**STACK, **gpu}, {**now, **gpu, "cublas_workspace": ":16:8"})
    algorithms, workspace = found
    messages.check("\n".join(found))
    assert "False" in algorithms and "True" in algorithms
    assert all(fact in workspace for fact in ("CUBLAS_WORKSPACE_CONFIG", "None", ":16:8"))
    older = {key: value for key, value in now.items() if key != "deterministic_warn_only"}
    assert environment.stack_differences({**older, "device": "cuda"}, {**now, **gpu}) == []


def test_the_capture_is_plain_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    found = environment.capture("cpu", CPU, seed=7, determinism="strict")
    text = json.dumps(found)
    assert json.loads(text) == found and "abcdefghijklmnop" not in text
    assert (
        found["determinism"] == "strict"
        and found["seed"] == 7
        and found["variables"]["OMP_NUM_THREADS"] == "2"
    )
    installed = {one.metadata["Name"]: one.version for one in metadata.distributions()}
    assert found["packages"] == dict(sorted(installed.items())) and found["stack"].keys() == STACK.keys()
    assert found["stack"]["device"] == "cpu" and type(found["stack"]["torch"]) is str
    assert environment.stack_differences(found["stack"], environment.stack("cpu", CPU)) == []
    assert found["roost"] == roost.__version__ and found["python"].startswith("3.")
    assert found["gpus"] == [] and "driver" in found
    assert (
        environment.stack_differences(found["stack"], {**found["stack"], "python": "4", "roost": "9"}) == []
    )


def test_switches_of_torch_are_part_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "NCCL_ALGO", "NCCL_PROTO"):
        monkeypatch.delenv(name, raising=False)
    before = environment.stack("cpu", CPU)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        now = environment.stack("cpu", CPU)
    finally:
        torch.use_deterministic_algorithms(False)
    changed = {"deterministic": True, "deterministic_warn_only": True}
    assert now == {**before, **changed} != before
    cuda = accelerator_of("cuda").numeric_flags()
    variables = ("cublas_workspace", "tf32_override", "nccl_algorithm", "nccl_protocol")
    assert {name: cuda.pop(name) for name in variables} == dict.fromkeys(variables)
    assert cuda.keys() > before.keys() & cuda.keys() and None not in cuda.values()
    assert cuda.keys() > {"cudnn_benchmark", "convolution_precision", "rnn_precision"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release", "570.86.15"),
        ("something else", None),
    ],
)
def test_the_driver_is_what_its_module_says(
    text: str, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    assert environment._driver() == version


@pytest.mark.needs_gpu
def test_the_gpus_are_listed() -> None:
    found = environment.capture("cuda", accelerator_of("cuda"), seed=0, determinism="seeded")
    assert json.loads(json.dumps(found)) == found
    assert len(found["gpus"]) == torch.cuda.device_count() and found["gpus"][0]["memory_mb"] > 0
    known = ("cuda", "cudnn", "cublas", "nccl", "device_name", "matmul_precision", "cudnn_benchmark")
    assert [name for name in known if found["stack"][name] is None] == []


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_the_state_of_git(tmp_path: Path) -> None:
    assert environment.git_state(tmp_path) is None
    _git(tmp_path, "init", "-q")
    assert environment.git_state(tmp_path) is None  # nothing committed yet
    (tmp_path / "a.py").write_text("lr = 1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    clean = environment.git_state(tmp_path)
    assert clean is not None and not clean["dirty"] and len(clean["commit"]) == 40
    (tmp_path / "a.py").write_bytes(b"lr = 2\npassword = 'hunter2'\n\xff\xfe\n")
    dirty = environment.git_state(tmp_path)
    assert dirty is not None and dirty["dirty"] and dirty["commit"] == clean["commit"]
    assert "+lr = 2" in dirty["diff"] and "hunter2" not in dirty["diff"]
    assert environment.git_state(tmp_path / "nowhere") is None


def test_a_project_inside_of_a_repository_shows_its_own_changes_alone(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "inner").mkdir()
    for name in ("a.py", "inner/b.py"):
        (tmp_path / name).write_text("1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "a.py").write_text("2\n")
    found = environment.git_state(tmp_path / "inner")
    assert found is not None and not found["dirty"]
