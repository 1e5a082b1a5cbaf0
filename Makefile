# One command for each job; `make help` lists them. Everything is installed into .venv, from the
# exact versions in locks/. pip takes a file only if its hash is in the lock.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --no-deps --no-build-isolation
LOCK := uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
  --no-emit-index-url --no-annotate --no-header

.PHONY: help
help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gossamer needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The build tools come first, because source packages need them. In this way those builds use locked
# versions, too.
$(VENV)/.installed: $(VENV)/.made locks/build.txt locks/dev.txt pyproject.toml hatch_build.py src/gossamer/filters/_native.pyx src/gossamer/filters/_columns.pxi
	@echo "installing the locked versions into $(VENV) (a minute or two; PySpark is the big one)"
	$(INSTALL) --require-hashes -r locks/build.txt
	$(INSTALL) --require-hashes -r locks/dev.txt
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.bench: $(VENV)/.installed locks/bench.txt
	$(INSTALL) --require-hashes -r locks/bench.txt
	@touch $@

# The tool has packages of its own, so it has an environment of its own.
$(VENV)/.sbom: locks/sbom.txt
	$(PYTHON) -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r locks/sbom.txt
	@touch $@

.PHONY: install demo test check promises bench swarm lock sbom clean
install: $(VENV)/.installed  ## create .venv and install the exact locked versions

demo: $(VENV)/.installed  ## run a fabric of real processes on loopback and let Spark judge it
	$(BIN)/gossamer demo

test: $(VENV)/.installed  ## run every check and every test: unit, paper, live sockets, Spark
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory -j 4 test-spark test-apart test-live test-rest

# Four processes run the tests side by side. The Spark tests share one JVM. The tests in APART start
# hosts, clusters or jobs of their own. They and the live tests mostly wait, and the fourth process,
# which runs all other tests, uses that time.
APART := tests/netns tests/net/test_load.py tests/pipeline/test_cluster.py tests/pipeline/test_killed.py
.PHONY: test-spark test-apart test-live test-rest
test-spark:
	$(BIN)/python -m pytest -m spark $(APART:%=--ignore=%)
test-apart:
	$(BIN)/python -m pytest -m spark $(APART)
test-live:
	$(BIN)/python -m pytest -m "live and not spark"
test-rest:
	$(BIN)/python -m pytest -m "not live and not spark"

check: $(VENV)/.installed  ## check format, lint, types and import contracts, and run the fast tests: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -m "not spark and not live and not slow"

promises: $(VENV)/.installed  ## run the tests that hold the promises of docs/delivery.md ten times in a row
	$(BIN)/python scripts/promises.py --times $(or $(TIMES),10)

bench: $(VENV)/.bench  ## measure the numbers in the README, each beside its rivals in the same run
	$(BIN)/python benchmarks/path.py
	$(BIN)/python benchmarks/wire.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/index.py
	$(BIN)/python benchmarks/oracle.py

swarm: $(VENV)/.installed  ## simulate random faults over many seeds; a failure prints the line that replays it
	$(BIN)/gossamer simulate swarm --seeds $(or $(SEEDS),200)
	$(BIN)/gossamer simulate swarm --overlay fabric --seeds $(or $(SEEDS),200)
	$(BIN)/gossamer simulate swarm --overlay interest --seeds $(or $(SEEDS),200)
	$(BIN)/gossamer simulate swarm --overlay skiplist --seeds $(or $(SEEDS),200)
	$(BIN)/gossamer simulate swarm --overlay tree --seeds $(or $(SEEDS),1000)
	$(BIN)/gossamer simulate fuzz --seconds $(or $(FUZZ),600)

lock:  ## resolve pyproject.toml again (needs uv); writes versions and hashes, no index and no address
	$(LOCK) --extra spark --extra metrics --group dev pyproject.toml -o locks/dev.txt
	$(LOCK) --group build -c locks/dev.txt -o locks/build.txt
	$(LOCK) --group bench -c locks/dev.txt -o locks/bench.txt
	$(LOCK) --all-extras -c locks/dev.txt pyproject.toml -o locks/run.txt
	$(LOCK) --group sbom -o locks/sbom.txt

sbom: $(VENV)/.sbom  ## write dist/gossamer.cdx.json: all packages that Gossamer runs on (CycloneDX)
	@mkdir -p dist
	$(VENV)/sbom/bin/cyclonedx-py requirements locks/run.txt --pyproject pyproject.toml --output-reproducible \
	  --mc-type library --output-file dist/gossamer.cdx.json

clean:  ## remove everything that the other commands made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache gossamer-demo
	rm -f src/gossamer/filters/_native.*.so src/gossamer/filters/_native.*.pyd
