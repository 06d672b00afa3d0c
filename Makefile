# Everything sets itself up: Python 3.11 or newer, pip and make are all a machine needs.
#
#   make demo    watch a fleet lose an agent and get it back (under a minute)
#   make test    run the tests of rules, protocol, commands, live view and tools (ARGS="tests/store -x")
#   make test-all  run everything that needs no other program, with its coverage: what CI runs
#   make test-agents  run agent CLIs themselves against a scripted model (needs npm)
#   make test-postgres  run the tests over PostgreSQL, which it installs where there is none
#   make test-packaging  build a wheel and an sdist, install them with pip, pipx and uv (needs the network)
#   make test-web  run the tests of fleetctl web in a real browser (needs Chromium, which it installs where it may)
#   make check   format, lint, order of imports, types, make test-all
#   make generate  write what is made from the code: completions, man pages, reference pages
#   make campaign  try to break the promises, for minutes to hours (ARGS="kill --count 50")
#   make recording  record the session that README shows
#   make screenshots  draw the pictures of fleetctl web that the docs show (needs Chromium)
#   make bench   measure, beside an fsync of the same disk and beside others (ARGS="--only locks")
#   make bench-growth  measure stores, missions and audiences of ever greater size
#   make bench-shared  measure one PostgreSQL for 1 to 8 daemons, beside a store of one's own
#   make bench-scale  measure hundreds of machines on one PostgreSQL
#   make bench-requests  measure what is added to requests to a model, with real agent CLIs (needs npm)
#   make bench-page  measure the page of fleetctl web in a browser (needs Chromium)
#   make bench-compare BASE=main~5   measure another revision and this one, in turns
#   make eval-briefing  score what briefings say of 51 sessions, beside what else could be given

PYTHON ?= python3
# Tests wait for disks and processes now and then: one more than there are cores keeps all busy.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 6 ? n + 1 : 6)))
VENV := .venv
BIN := $(VENV)/bin
# CI runs tests that failed once more, alone. By hand, the first failure counts.
AGAIN = $(if $(SECOND_CHANCE),$(BIN)/python .ci/second_chance.py)

.PHONY: demo test test-all test-agents test-packaging test-postgres test-web campaign check format lint types generate recording screenshots bench bench-compare bench-growth bench-page bench-requests bench-scale bench-shared eval-briefing clean
.DEFAULT_GOAL := check

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fleetd needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@# Some distributions ship venv without its pip; then the pip outside fills it.
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(VENV)/.installed: pyproject.toml native/hook_client.c native/build_backend.py | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --use-pep517 --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt native/hook_client.c native/build_backend.py | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --use-pep517 --editable '.[dev]' --constraint constraints.txt
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/fleetctl demo

# What is run after each change; the others start daemons by the dozen, break disks, or take their time.
TIERS := tests/unit tests/rules tests/protocol tests/cli tests/tui tests/mcp tests/test_layers.py

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal $(ARGS) $(if $(findstring tests/,$(ARGS)),,$(TIERS))

test-all: $(VENV)/.installed-dev
	@rm -f .coverage .coverage.*
	$(AGAIN) $(BIN)/coverage run -m pytest --numprocesses=$(JOBS) --dist=worksteal $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --format=total >/dev/null
	@$(BIN)/coverage json --quiet -o .coverage.json
	@$(BIN)/python .ci/coverage_floor.py .coverage.json

test-agents: $(VENV)/.installed-dev
	$(AGAIN) $(BIN)/python -m pytest -rfE tests/agents $(ARGS)

test-packaging: $(VENV)/.installed-dev
	$(AGAIN) $(BIN)/python -m pytest -rfE tests/packaging $(ARGS)

test-postgres: $(VENV)/.installed-dev
	$(AGAIN) $(BIN)/python -m tests.postgres_suite -rfE --quiet --numprocesses=$(JOBS) --dist=worksteal $(ARGS)

# One browser for all tests: they are not run side by side.
test-web: $(VENV)/.installed-dev
	$(BIN)/python -m tests.web.browser
	$(AGAIN) $(BIN)/python -m pytest -rfE tests/web $(ARGS)

campaign: $(VENV)/.installed-dev
	$(BIN)/python -m tests.chaos $(or $(ARGS),all)

check: lint types test-all

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@# A report of what is against the order; nothing else is worth a screen.
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.installed-dev
	$(BIN)/mypy

generate: $(VENV)/.installed-dev
	$(BIN)/python -m tools.generate $(ARGS)

bench: $(VENV)/.installed
	@$(if $(findstring --no-peers,$(ARGS)),,$(BIN)/python -m benchmarks.peers)
	$(BIN)/python -m benchmarks $(ARGS)

bench-growth: $(VENV)/.installed
	$(BIN)/python -m benchmarks.growth $(ARGS)

bench-shared: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.shared $(ARGS)

bench-scale: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.shared.scale $(ARGS)

bench-requests: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.requests $(ARGS)

bench-page: $(VENV)/.installed-dev
	$(BIN)/python -m tests.web.browser
	$(BIN)/python -m benchmarks.page $(ARGS)

bench-compare: $(VENV)/.installed
	@test -n "$(BASE)" || { echo "name a revision: make bench-compare BASE=HEAD~1" >&2; exit 1; }
	$(BIN)/python -m benchmarks.compare $(BASE) $(ARGS)

eval-briefing: $(VENV)/.installed
	@$(BIN)/python -m benchmarks.briefing.evaluation $(ARGS)

recording: $(VENV)/.installed-dev
	$(BIN)/python -m tools.recording

screenshots: $(VENV)/.installed-dev
	$(BIN)/python -m tests.web.browser
	$(BIN)/python -m tools.web_screenshots

clean:
	rm -rf $(VENV) .agents .bench build dist fleetctl/_hook_client *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache
