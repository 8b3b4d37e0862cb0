# `make demo` shows the main job on a private PostgreSQL; `make test` runs every test; `make check` reads without running.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Each of the two has a PostgreSQL server of its own; more than two take each other's time on a small machine.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal
# A target per extra, so that a user who only wants the demo installs no linter.
STAMP  := $(VENV)/.installed

.PHONY: help install demo test test-15 smoke-15 check format bench chaos proof clean

help: ## What there is to do
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP)-%: pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { echo "postledger: needs python3 (3.11 or newer) with venv: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "postledger: $(VENV) has a Python older than 3.11; remove it and set PYTHON=python3.11" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

install: $(STAMP)-test,check ## Make the environment for development

demo: $(STAMP)-embedded ## Send a sample campaign of 2,000 over real SMTP, and prove what happened
	$(BIN)/postledger demo

test: $(STAMP)-test ## Run every test on the embedded PostgreSQL 18
	$(PYTEST)

test-15: $(STAMP)-test ## Run every test on Debian's PostgreSQL 15 (package postgresql-15)
	POSTLEDGER_TEST_PG=15 $(PYTEST)

smoke-15: $(STAMP)-test ## Run what touches SQL on Debian's PostgreSQL 15
	POSTLEDGER_TEST_PG=15 $(PYTEST) -m sql tests/chaos tests/database tests/enqueue tests/installations tests/ledger tests/pooled tests/projections tests/sealing tests/workers

check: $(STAMP)-test,check ## Format, lint, import contracts, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)-test,check ## Write the format that `check` wants
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)-bench ## Drain, pickup and idle beside a plain worker and PGQueuer (half an hour; nothing else should run)
	$(BIN)/python -m bench.run
	$(BIN)/python -m bench.writing
	$(BIN)/python -m bench.following
	$(BIN)/python -m bench.together
	$(BIN)/python -m bench.rates
	$(BIN)/python -m bench.messages
	$(BIN)/python -m bench.webhooks
	$(BIN)/python -m bench.upload
	$(BIN)/python -m bench.feed

chaos: $(STAMP)-test ## 100,000 mails by three workers, one killed, one stopped, PostgreSQL restarted (some minutes)
	$(BIN)/python -m tests.chaos.soak

proof: $(STAMP)-test ## Blocks and followers against a model, then while connections and PostgreSQL are killed (some minutes)
	$(BIN)/python -m tests.sealing.proof

clean: ## Remove what the other targets made (not the data of the embedded PostgreSQL)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
