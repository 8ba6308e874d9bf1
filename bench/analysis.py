"""Time from the start of an analysis command to its first line of output.

    python bench/analysis.py [--rounds 9]

The package is one trained run of the digits template. Three commands are timed, in turn, from their start to
the first line that they print:

- bare `import torch` and `torch.load` of the weights, which is the limit;
- a hand-written script that does the same work (scikit-learn's data set, the network, its weights);
- `roost analyze`, which checks the script, starts a supervised process, builds the Dataset and the Runner and
  loads verified weights.

Medians of whole processes; wall clock.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roost.operations.lifecycle.new_project import new_project
from roost.operations.lifecycle.run import RunRequest, run

SCRIPT = "import time\ndef experience(self):\n    print('first line', time.time())\n"

BARE_LOAD = """
import sys, time, torch
torch.load(sys.argv[1], weights_only=True)
print("first line", time.time())
"""

BY_HAND = """
import sys, time, torch
from sklearn.datasets import load_digits
from Model.Net import Net
pixels, labels = load_digits(return_X_y=True)
images, labels = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8) / 16, torch.from_numpy(labels)
net = Net(classes=10, channels=32, dropout=0.3)
net.load_state_dict(torch.load(sys.argv[1], weights_only=True))
net.eval()
print("first line", time.time())
"""

EXPORT = """
import sys, torch, roost
def export(self):
    torch.save(self.model.net.state_dict(), sys.argv[2])
roost.analyze(sys.argv[1], export, device="cpu")
"""


def seconds_to_first_line(command: list[str], cwd: Path) -> float:
    """Returns the seconds from the start of the command to its first line."""
    began = time.time()
    process = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, check=True, text=True)
    return float(process.stdout.partition("first line ")[2].split()[0]) - began


def make_package(folder: Path) -> tuple[Path, Path]:
    """Returns a package of one epoch, and its weights in a file of `torch.save`."""
    project = folder / "digits"
    new_project(project, template="digits")
    (project / "AnalyzeScripts" / "look.py").write_text(SCRIPT)
    started = run(RunRequest(config=project / "config.yaml", overrides=["max_epochs=1"], device="cpu"))
    assert started.process is not None and started.process.wait() == 0
    weights = folder / "weights.pt"
    command = [sys.executable, "-c", EXPORT, str(started.package), str(weights)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return started.package, weights


def main(rounds: int) -> None:
    roost = str(Path(sys.executable).parent / "roost")
    with tempfile.TemporaryDirectory() as folder:
        package, weights = make_package(Path(folder))
        cases = {
            "import torch, torch.load": [sys.executable, "-c", BARE_LOAD, str(weights)],
            "hand-written script": [sys.executable, "-c", BY_HAND, str(weights)],
            "roost analyze": [roost, "analyze", str(package), "-s", "look", "-CPU"],
        }
        rows: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds + 1):
            for name, command in cases.items():
                rows[name].append(seconds_to_first_line(command, package))
    limit = statistics.median(next(iter(rows.values()))[1:])
    print("| to the first line | median s | min … max | × |\n|---|---|---|---|")
    for name, values in rows.items():
        middle, rest = statistics.median(values[1:]), values[1:]
        print(f"| {name} | {middle:.2f} | {min(rest):.2f} … {max(rest):.2f} | {middle / limit:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    main(parser.parse_args().rounds)
