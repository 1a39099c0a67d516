PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-tl4 lint clean

# The stamp lies inside the environment: a deleted or half-made .venv installs again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/headlab study esp --quick --out out/demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The instruments on bridges of transformer-lens 4, past the pin of pyproject.toml until the toy models follow.
TL4 := .venv-tl4
$(TL4)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TL4)
	$(TL4)/bin/python -m pip install --quiet --upgrade pip
	grep -v '^transformer-lens' constraints.txt > $(TL4)/constraints.txt
	$(TL4)/bin/python -m pip install --quiet -c $(TL4)/constraints.txt torch
	$(TL4)/bin/python -m pip install --quiet -c $(TL4)/constraints.txt 'transformer-lens>=4,<5' \
	  einops networkx scikit-learn scipy pandas 'jaxtyping>=0.2.34' beartype hypothesis pytest pytest-timeout
	touch $@

test-tl4: $(TL4)/.installed
	PYTHONPATH=. $(TL4)/bin/python -m pytest tests/interp/test_bridges.py

lint: $(VENV)/.installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright

clean:
	rm -rf $(VENV) .venv-tl4 out build dist *.egg-info
