# Everything below works on a machine that has python3 (3.11 or later), make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-fast test-bare test-long test-agents test-board pictures test-fleet test-forges test-repos check audit format dist bench bench-peers lock traceability docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# Two stamp files, for the runtime and the development dependencies. Each is rebuilt when its lock file changes.
# Byte code is compiled on install, so that the first command does not have to do it.
$(VENV)/.runtime: requirements/build.txt requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "phasegate needs Python 3.11 or later; try: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --no-index --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime $(patsubst %,requirements/%.txt,dev board otel s3 fleet)
	@$(BIN)/python -m pip install --quiet --require-hashes $(patsubst %,-r requirements/%.txt,dev board otel s3 fleet)
	@touch $@

# The official MCP SDK is only a client in tests, not a dependency: importing it takes longer than starting our server.
$(VENV)/.peers: $(VENV)/.dev requirements/mcp.txt
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/mcp.txt
	@touch $@

demo: $(VENV)/.runtime ## run a complete feature in a temporary folder
	@$(BIN)/phasegate demo

# The tests start thousands of processes: each would compile again what has changed since the install, where the
# environment forbids to write byte code.
test: $(VENV)/.dev ## all tests except the long ones
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -m pytest -n $(WORKERS) -q -m "not long" --ignore=tests/agents --ignore=tests/board --ignore=tests/fleet --ignore=tests/forges

test-fast: $(VENV)/.dev ## unit and property tests, without the slow ones: under a minute
	@$(BIN)/python -m pytest -n $(WORKERS) -q -m "not long and not slow" tests/unit tests/property

# Only these tests depend on whether a sandbox is available.
SANDBOX_TESTS := $(addprefix tests/,contract crash e2e hostile unit/agents unit/sandbox unit/checks unit/engine)

# SAMPLE=1 selects those that start agents and commands: they are fast enough for every push.
SANDBOX_SAMPLE = $(wildcard $(addprefix tests/,crash/test_d*.py crash/test_feature*.py e2e/test_dispatch*.py e2e/test_l*.py e2e/test_t*.py e2e/test_check.py \
  e2e/test_workflows.py hostile/test_sandbox*.py hostile/test_*dispatch*.py hostile/test_p*.py hostile/test_setup*.py hostile/test_traps*.py hostile/test_egress_proxy.py)) tests/unit/sandbox

test-bare: $(VENV)/.dev ## the tests that depend on a sandbox, without one; SAMPLE=1: some of them
	@$(BIN)/python -m tools.without_bubblewrap $(BIN)/python -m pytest -n $(WORKERS) -q -m "not long" $(if $(SAMPLE),$(SANDBOX_SAMPLE),$(SANDBOX_TESTS))

test-long: $(VENV)/.dev ## all tests with the nightly profile, including those of the fleet and the agent programs
	@HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n $(WORKERS) -q --ignore=tests/agents --ignore=tests/board --ignore=tests/fleet --ignore=tests/forges
	@$(MAKE) --no-print-directory test-fleet LONG=1
	@$(MAKE) --no-print-directory test-agents

test-repos: $(VENV)/.dev ## run public projects from init to a merged package; prints a table
	@$(BIN)/python tools/test_repos.py $(REPOS)

# SAMPLE=1: a package by each program, a whole feature by three of them, and MCP.
AGENTS_SAMPLE := whole_run or mcp or test_a_work_package_is_implemented

test-agents: $(VENV)/.peers ## test the real agent programs with a fake model; SAMPLE=1: some tests; NEWEST=1: their newest versions
	@$(BIN)/python tools/agent_tests.py $(if $(NEWEST),--newest) $(if $(SAMPLE),-k "$(AGENTS_SAMPLE)") -n $(WORKERS) -q

test-fleet: $(VENV)/.dev ## test the fleet with a real S3 server and a real Temporal server (installs both); LONG=1: including the long tests
	@$(BIN)/python tools/fleet_tests.py -n 2 -q $(if $(LONG),,-m "not long")

test-board: $(VENV)/.dev ## the board in a real Chromium; PICTURES=DIR: keep pictures of every page
	@$(BIN)/python tools/board_tests.py -q $(BOARD)

pictures: $(VENV)/.dev ## regenerate the pictures in the docs: the board, and the terminal of the demo
	@PICTURES=$(VENV)/pictures $(BIN)/python tools/board_tests.py -q -k every_page
	@for picture in docs/how-to/pictures/*.png; do cp $(VENV)/pictures/$$(basename $$picture) $$picture; done
	@$(BIN)/python -m tools.terminal_svg docs/how-to/pictures/demo-hostile.svg phasegate demo --hostile

test-forges: $(VENV)/.dev ## check requests to the forges against their published API schemas
	@$(BIN)/python tools/forge_tests.py -q

check: $(VENV)/.dev ## format, lint, types, imports, unused code, shipped files, traceability, known vulnerabilities
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/phasegate agent-file check src/phasegate/prompts/agent_files
	@$(BIN)/phasegate template lint src/phasegate/prompts/templates/system
	@$(BIN)/python tools/unused_code.py
	@$(BIN)/python tools/readability.py
	@$(BIN)/python tools/traceability.py --check
	@$(BIN)/python -m tools.prompt_lint
	@$(BIN)/python -m tools.audit_locks $(VENV)/audit --once-a-day

audit: $(VENV)/.dev ## check the locked packages for known vulnerabilities
	@$(BIN)/python -m tools.audit_locks $(VENV)/audit

dist: $(VENV)/.dev ## build a release of HEAD, reproducibly: wheel, sdist, bill of materials, provenance
	@$(BIN)/python -m tools.release dist

format: $(VENV)/.dev ## format the code and fix what ruff can fix
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

bench: $(VENV)/.dev ## measure against the goals, as ratios within one run
	@$(BIN)/python -m bench

bench-peers: $(VENV)/.dev ## install the peers that `bench` compares with, once, outside the checkout
	@$(BIN)/python -m tools.bench_peers

traceability: $(VENV)/.dev ## write docs/TRACEABILITY.md from the markers in the tests
	@$(BIN)/python tools/traceability.py

$(VENV)/.docs: $(VENV)/.runtime requirements/docs.txt
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

docs: $(VENV)/.docs ## build the documentation site in .venv/site
	@rm -rf $(VENV)/docs && mkdir -p $(VENV)/docs
	@cp -R *.md docs $(VENV)/docs/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site is in $(VENV)/site"

lock: ## update the lock files
	@$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/python -m pip install --quiet pip-tools
	@cd requirements && for f in build runtime dev docs board browser otel s3 fleet servers mcp audit; do ../$(VENV)/lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras \
	  --allow-unsafe --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o $$f.txt $$f.in; done

clean: ## remove everything that make created
	@rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
