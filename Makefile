# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := embedded,ray,inspect,mlflow,dashboard,dev
FOLDERS := modules signatures optimize data evals
export HF_HUB_OFFLINE ?= 1
export LITELLM_LOCAL_MODEL_COST_MAP ?= true

.PHONY: demo test lint types bench clean

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[embedded]'
	touch $@

$(VENV)/.installed: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/salon brainstorm "AI smart glasses for everyday consumers" --personas data/example_personas.csv --turns 1 --ideas 1 --votes 2 --no-facilitator --seed 1

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy does not follow the import hook of an editable install: show it the package as one tree of links.
types: $(VENV)/.installed
	rm -rf build/types && mkdir -p build/types/salon
	ln -s $(addprefix $(CURDIR)/,$(wildcard src/salon/*)) $(addprefix $(CURDIR)/,$(FOLDERS)) build/types/salon/
	MYPYPATH=build/types $(BIN)/mypy -p salon

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache
