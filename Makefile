# Every target does its own set-up. `make quickstart` and `make test` are all that a newcomer needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# In their own order: the smallest files, those of the package, come last, so that all workers end together. Three, as
# tests of services wait for clocks and for each other: two leave two cores idle for a third of the time.
PYTEST := $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
MYPY   := $(BIN)/mypy --num-workers 2
BUILD_INPUTS := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/tacit/kernels/*.cpp src/tacit/kernels/*.h) $(VENV)/.modules

.PHONY: quickstart test check check-slow bench lock clean FORCE

quickstart: $(VENV)/.run
	@echo "living through one made-up day: half a minute, longer on a busy machine"
	@$(BIN)/tacit quickstart

test: $(VENV)/.dev $(VENV)/.node
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MYPY)
	$(PYTEST)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MYPY)

check-slow: $(VENV)/.dev $(VENV)/.node
	$(PYTEST) -m "slow or not slow" --hypothesis-profile=fresh

bench: $(VENV)/.bench
	$(BIN)/tacit bench

# The constraints file pins everything, build tools included, so a fresh machine gets what we tested. torch comes first,
# by its exact version: another spelling may fetch gigabytes of accelerator packages.
# In a terminal pip shows what it fetches and how far it is; piped it says nothing but errors.
PIP_INSTALL = @PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install \
	$(shell test -t 2 || echo --quiet --quiet) --disable-pip-version-check --root-user-action=ignore
TORCH_SIZE := about 200 MB to fetch and 750 MB on disk, a minute or several

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tacit needs Python 3.11 or newer")'
	@echo "making a Python environment in $(VENV): some seconds"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# An editable install knows its modules by name: install again when one came, went or moved, not when one changed.
$(VENV)/.modules: $(VENV)/.venv FORCE
	@find src -name '*.py' | sort | cmp -s - $@ || find src -name '*.py' | sort > $@

$(VENV)/.run: $(VENV)/.venv $(BUILD_INPUTS)
	@echo "installing into $(VENV), once: first torch, $(TORCH_SIZE)"
	$(PIP_INSTALL) torch==2.13.0
	@echo "then tacit with NumPy, SciPy, Arrow and matplotlib, about 150 MB to fetch, and its C++ loops: a minute or two"
	$(PIP_INSTALL) --editable ".[train,studies]"
	@touch $@

$(VENV)/.dev: $(VENV)/.venv $(BUILD_INPUTS)
	@echo "installing into $(VENV), once: first torch, $(TORCH_SIZE)"
	$(PIP_INSTALL) torch==2.13.0
	@echo "then tacit with its services and test tools, about 250 MB to fetch, and its C++ loops: a minute or three"
	$(PIP_INSTALL) --editable ".[dev]"
	@touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing into $(VENV), once: the peers that benchmarks compare with, about 100 MB to fetch: a minute or two"
	$(PIP_INSTALL) --editable ".[bench]"
	@touch $@

# What tests compare the device client for browsers with. The client needs none of it, and without npm or a network
# those tests are skipped, so nothing fails here; npm is asked again next time.
NPM_INSTALL = npm install --prefix tests/device --no-package-lock --no-audit --no-fund --ignore-scripts --silent \
	--fetch-retries 0 --fetch-timeout 20000

$(VENV)/.node: $(VENV)/.venv tests/device/package.json
	@echo "installing into tests/device/node_modules, once: what the device client is compared with, about 10 MB: some seconds"
	@if ! command -v npm > /dev/null; then echo "NPM IS NOT INSTALLED: the device client is compared with no other"; \
	elif $(NPM_INSTALL); then touch $@; \
	else echo "NPM COULD NOT INSTALL, is there a network? The device client is compared with no other"; fi

# The digests of every file of every pin, for `pip install --require-hashes`. torch is left out: it comes first, by its
# exact version, and which build of it serves a machine is the machine's business.
LOCK = @$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"

lock: $(VENV)/.venv
	@echo "installing uv into $(VENV), about 25 MB to fetch, and asking for the digests of all pins: a minute"
	$(PIP_INSTALL) uv
	$(LOCK) --constraint constraints.txt --output-file requirements.lock pyproject.toml
	$(LOCK) --no-deps --no-emit-package torch --output-file requirements-dev.lock constraints.txt

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
