# make demo    a real model learns on real data, in its own .venv; ends with accuracy, package and picture
# make test    lint, types and the tests of the parts
# make test-system    whole systems: programs, labs, servers, packages of older versions
# make gpu     the tests and benchmarks that need a GPU, with the interpreter PYTHON as it is
# All but the last need only Python (3.11 or newer), pip and make. Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
# Relative, because pip splits these variables at spaces; they pin what the build itself fetches.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
       $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Images of containers set it. Without bytecode every process of the tests compiles the tests, and every program
# that they start compiles roost.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-system messages lint types format soak bench gpu clean
.NOTPARALLEL:

demo: .venv/.demo
	@mkdir -p demo
	@test -e demo/digits || $(BIN)/roost new demo/digits --template digits
	@$(BIN)/roost run -c demo/digits/config.yaml
	@package=$$(ls -dt demo/digits/runs/*/ | head -n 1) && package=$${package%/} && \
	picture=$$($(BIN)/roost plot "$$package") && \
	accuracy=$$(cat "$$package"/records/*.jsonl | sed -n 's/.*"test\/accuracy": *\([0-9.e-]*\).*/\1/p' | tail -n 1) && \
	echo && echo "accuracy  $$accuracy" && echo "package   $$package" && echo "picture   $$picture"

# Three processes, more than CI has cores, for many tests wait; a file of tests in one of them. They must agree
# on the tests, and some names come out of sets. Models are tiny: more threads would only wait for each other.
# Before that, while one core checks types, the other writes the bytecode of the tests, else each process would.
test: lint
	$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 & $(MAKE) types; status=$$?; wait; exit $$status
	OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
	  --ignore tests/system

# Whole systems, as a user starts them. Heavier than `make test`, so fewer at once.
test-system: .venv/.dev
	OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder tests/system

# Renews the one snapshot of what errors say, after a message was changed on purpose: read its diff.
messages: .venv/.dev
	echo '{}' > tests/messages.json
	OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --update-messages
	git diff --stat tests/messages.json

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy --exclude src/roost/templates  # these are users' code, imported from their own folder

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Proofs that take longer than CI may: thousands of kills, whole grids.
soak: .venv/.dev
	$(BIN)/python -m pytest -m soak --timeout 0

bench: .venv/.dev
	@set -e; for script in bench/*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

# What needs a GPU: its tests and benchmarks, with the interpreter that is given; nothing is installed or fetched.
# Done pieces are kept in bench/gpu_results.json. One piece: make gpu GPU="--only tests".
gpu:
	$(PYTHON) tools/gpu_suite.py $(GPU)

# Leaves demo/ alone: it holds packages, and roost deletes no run to make room.
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +

# pip comes last when a venv is made, so it tells a whole venv from half of one.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "roost needs Python 3.11 or newer; received %d.%d; fix: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv

# A stamp says that this extra is installed as pyproject.toml and constraints.txt ask for it.
.venv/.%: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing roost[$*] into .venv (about a minute, 1.5 GB, the first time)"
	@$(PIP) -e '.[$*]'
	@touch $@
