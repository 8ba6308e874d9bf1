from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter

from roost.train.profiling.stack_sampler import Sample, StackSampler
from roost.train.profiling.step_parts import BY_FUNCTION, WORKER_LOOP, split
from roost.train.profiling.worker_stacks import WorkerSamples, decode, encode


def test_the_functions_that_begin_parts_exist() -> None:
    """They are named by text, so a renamed one would be found nowhere."""
    for file, function in [*BY_FUNCTION, WORKER_LOOP]:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        defined = {
            one.name
            for one in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(one, ast.FunctionDef)
        }
        assert function in defined, f"{file} has no {function}"


def test_the_innermost_function_decides() -> None:
    update = ("run", "/x/roost/train/step/stepper.py", 0)
    forward = ("_forward", "/x/roost/train/step/gradients.py", 0)
    own = ("loss", "/p/Runner.py", 7)
    assert split((update, forward, own)) == ("forward", (own,))
    assert split((update,)) == ("optimizer", ())
    draw = ("draw", "/x/roost/train/step/windows.py", 0)
    assert split((draw, ("to_device", "/p/Runner.py", 0)))[0] == "to device"
    assert split((own,)) == ("other", (own,))
    worker = ("run_worker", "/x/roost/train/data/workers/loader_worker.py", 0)
    assert split((worker, own))[0] == "data" and split((worker,))[0] == "idle"


def test_a_worker_s_samples_are_the_same_when_read() -> None:
    stack = (("f", "/p/a.py", 0), ("g", "/p/a.py", 3))
    samples = WorkerSamples(Counter({Sample(stack, True): 4, Sample(stack[:1], False): 1}), 2.5, 0.5, None)
    assert decode(encode(samples)) == samples


def test_stacks_are_bounded() -> None:
    sampler = StackSampler()
    for number in range(10_000):
        sampler._count(Sample((("f", "a.py", number),), True))
    assert len(sampler.samples) <= 4001 and sum(sampler.samples.values()) == 10_000
