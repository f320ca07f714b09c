# Every target does its own set-up. `make quickstart` and `make test` are all that a newcomer needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# In their own order: the smallest files, those of the package, come last, so that both workers end together.
PYTEST := $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
MYPY   := $(BIN)/mypy --num-workers 2
BUILD_INPUTS := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/tacit/kernels/*.cpp src/tacit/kernels/*.h) $(VENV)/.modules

.PHONY: quickstart test check check-slow bench clean FORCE

quickstart: $(VENV)/.run
	@$(BIN)/tacit quickstart

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MYPY)
	$(PYTEST)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MYPY)

check-slow: $(VENV)/.dev
	$(PYTEST) -m "slow or not slow" --hypothesis-profile=fresh

bench: $(VENV)/.bench
	$(BIN)/tacit bench

# The constraints file pins everything, build tools included, so a fresh machine gets what we tested. torch comes first,
# by its exact version: another spelling may fetch gigabytes of accelerator packages.
PIP_INSTALL = PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tacit needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# An editable install knows its modules by name: install again when one came, went or moved, not when one changed.
$(VENV)/.modules: $(VENV)/.venv FORCE
	@find src/tacit -name '*.py' | sort | cmp -s - $@ || find src/tacit -name '*.py' | sort > $@

$(VENV)/.run: $(VENV)/.venv $(BUILD_INPUTS)
	@echo "installing tacit into $(VENV) (once)"
	$(PIP_INSTALL) torch==2.13.0
	$(PIP_INSTALL) --editable ".[train,studies]"
	@touch $@

$(VENV)/.dev: $(VENV)/.venv $(BUILD_INPUTS)
	@echo "installing tacit and its test tools into $(VENV) (once)"
	$(PIP_INSTALL) torch==2.13.0
	$(PIP_INSTALL) --editable ".[dev]"
	@touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing the peers that the benchmarks compare with into $(VENV) (once)"
	$(PIP_INSTALL) --editable ".[bench]"
	@touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
