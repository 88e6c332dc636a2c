PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-fast coverage lint docs test-min bench chaos clean

demo: $(VENV)/.ready
	$(BIN)/graphclean demo --overwrite

# One thread a test process: two that spin against each other are many times slower than one.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# For the loop while working: without lint, and without the tests that are marked slow.
test-fast: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow"

# Which lines and branches no test reaches; the page is build/coverage/index.html.
coverage: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --cov --cov-report=term --cov-report=html:build/coverage

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site in build/docs, with its links checked.
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/check_links.py

# The tests again with the oldest versions of everything but torch.
test-min: .venv-min/.ready
	OMP_NUM_THREADS=1 .venv-min/bin/pytest -n 2

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/graph.py

# Attacks for 20 minutes: kills, full disks, crowds, broken inputs, raw requests; the record and its page.
CHAOS_SECONDS := 1200
chaos: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/chaos.py --seconds $(CHAOS_SECONDS); status=$$?; $(BIN)/python benchmarks/tables.py; exit $$status

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev,docs]"
	@touch $@

.venv-min/.ready: pyproject.toml constraints-min.txt
	$(PYTHON) -m venv --clear .venv-min
	.venv-min/bin/pip install -q -c constraints-min.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .venv-min build dist .mypy_cache .ruff_cache .pytest_cache
