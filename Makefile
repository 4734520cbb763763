# Everything a newcomer needs: `make run` and `make test`. The rest is for daily work.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SUITE := $(BIN)/python -m pytest -q -rs -m "not long"
# The suite starts hundreds of processes. Where Python may not keep what it compiled, each would
# compile all modules again: half of the processor time of what a cluster of processes takes.
unexport PYTHONDONTWRITEBYTECODE
# Six runs side by side: most of the suite waits, for Java, Spark, timers and other processes.
SHARES := interop spark clusters browser rest units
# Tests with Java that go with others, so that no share lasts much longer than the others.
moved := tests/interop/test_mqadmin.py
with_browser := $(patsubst %,tests/interop/test_%.py,metrics policies replication statistics)
interop := tests/interop --ignore=tests/interop/matrix $(addprefix --ignore=,$(moved) $(with_browser))
spark := tests/spark tests/interop/matrix tests/crash
clusters := tests/chaos tests/unit/cluster $(patsubst %,tests/integration/test_%.py,cluster_commands conf_samples \
	controller elected_masters replicas acting_master examples broker_workers failover pending_work \
	several_servers)
# The browser's last: Playwright keeps an event loop running.
browser := tests/integration/operations $(patsubst %,tests/integration/test_%.py,agent_tools console_command \
	console_connections) $(with_browser) tests/browser
units := tests/unit tests/model tests/contract tests/golden --ignore=tests/unit/cluster
rest := tests $(addprefix --ignore=,tests/interop/matrix $(filter-out $(moved),$(wildcard tests/interop/test_*.py)) \
	tests/spark tests/crash $(browser) $(filter-out --%,$(units)) $(clusters))
# Options for bench-compare, such as COMPARE="--resume --context" or COMPARE="--baseline ../old".
COMPARE ?=
# A comparison with another checkout needs no Java and writes no page.
WITH_BASELINE = $(findstring --baseline,$(COMPARE))
COMPARE_PAGES = --into docs/benchmarks.md --plot docs/benchmarks-growth.svg --summary README.md
# For fuzz: how long each target runs, and which of tests/fuzz/targets.py; all of them by default.
MINUTES ?= 1
TARGET ?=
# For chaos: options of `bolide chaos run`, such as CHAOS="--mode controller --rounds 200 --seed 7".
CHAOS ?= --mode controller --minutes 30
# For chaos-compare: options such as CHAOS_COMPARE="--rounds 20 --seed 2028".
CHAOS_COMPARE ?=
# For bench-failover: options such as FAILOVER="--rounds 20 --fault kill pause".
FAILOVER ?= --rounds 5 --fault kill pause
FILES := src tests benchmarks docs examples
COMPILED := src/bolide/kernel src/bolide/broker/fast_path
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard $(COMPILED:%=%/*.p[xy][xd]))

.DEFAULT_GOAL := help
.PHONY: help run test test-long fuzz lint fmt bench bench-store bench-compare bench-access bench-replicas bench-smoke bench-spark bench-failover bench-console screenshots chaos-compare chaos docs clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' Makefile

run: $(VENV)/run.stamp  ## install and start everything, data in ./data
	@$(BIN)/bolide standalone --data data

test: $(VENV)/test.stamp  ## install what the tests need and run the whole suite
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m tests.browser.chromium
	@$(MAKE) --no-print-directory --keep-going --jobs=6 $(SHARES:%=test-%)

# Clusters come and go with network interfaces, and Java clients that look for their own address at
# that moment fail. So the tests with namespaces get a network of their own, where that is allowed,
# and names of namespaces of their own, for those of other clusters on the machine are the same.
OWN_NETWORK := mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up
test-clusters: APART := $(shell unshare --net --mount sh -c '$(OWN_NETWORK)' 2>/dev/null && \
	echo "unshare --net --mount sh -c '$(OWN_NETWORK) && exec \"\$$@\"' sh")

$(SHARES:%=test-%): test-%: $(VENV)/test.stamp
	@$(APART) $(SUITE) $($*) > $(VENV)/$@.txt 2>&1; status=$$?; cat $(VENV)/$@.txt; exit $$status

test-long: $(VENV)/test.stamp  ## the tests that take minutes
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m pytest -q -rs -m long

fuzz: $(VENV)/fuzz.stamp .cache/fuzz/kernel.stamp  ## coverage-guided, TARGET=… (all) for MINUTES=… (1) each
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(TARGET)

# The package with its compiled modules built for AddressSanitizer, apart from the ones in use. The
# runtime is preloaded, not linked: atheris brings one that works together with its fuzzer.
.cache/fuzz/kernel.stamp: $(VENV)/fuzz.stamp $(shell find src/bolide -name '*.p[xy]*' -not -name '*.pyc')
	@BOLIDE_COMPILER_FLAGS="-fsanitize=address -fno-omit-frame-pointer -O1 -g1" $(BIN)/python setup.py --quiet \
		build --build-lib .cache/fuzz/lib --build-temp .cache/fuzz/temp
	@touch $@

lint: $(VENV)/dev.stamp  ## style, types and import layers
	@$(BIN)/ruff check $(FILES)
	@$(BIN)/ruff format --check $(FILES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: $(VENV)/dev.stamp  ## put the code into shape
	@$(BIN)/ruff check --fix $(FILES)
	@$(BIN)/ruff format $(FILES)

bench: $(VENV)/test.stamp  ## route look-ups beside Apache RocketMQ's NameServer
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m benchmarks.namesrv

bench-store: $(VENV)/test.stamp  ## what the store does by itself: appends, flushes, reads, recovery
	@$(BIN)/python -m benchmarks.kernel
	@$(BIN)/python -m benchmarks.store

bench-compare: $(VENV)/test.stamp  ## brokers beside Apache's, for over an hour; into docs/benchmarks.md and README.md
	@$(if $(WITH_BASELINE),,$(BIN)/python -m tests.interop.apache)
	@$(BIN)/python -m benchmarks.compare $(COMPARE) $(if $(WITH_BASELINE),,$(COMPARE_PAGES))

bench-access: $(VENV)/test.stamp  ## the same with access control on at both; 10 minutes, into docs/benchmarks.md
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m benchmarks.compare --access-control --rounds 9 $(COMPARE) --into docs/benchmarks.md

bench-replicas: $(VENV)/test.stamp  ## what a slave costs, and SYNC_MASTER beside Apache's; into docs/benchmarks.md
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m benchmarks.compare --replicas $(COMPARE) --into docs/benchmarks.md

bench-failover: $(VENV)/test.stamp  ## time without service after a failover beside Apache's; into docs/failover-report.md
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m benchmarks.failover $(FAILOVER) --into docs/failover-report.md

bench-smoke: $(VENV)/test.stamp  ## has a message become dearer? A minute or two; fails if so
	@$(BIN)/python -m benchmarks.smoke

bench-spark: $(VENV)/test.stamp  ## rows per second through Spark; into docs/benchmarks.md
	@$(BIN)/python -m benchmarks.spark --into docs/benchmarks.md

bench-console: $(VENV)/test.stamp  ## the console with 5,000 topics and ten tabs; into docs/benchmarks.md
	@$(BIN)/python -m benchmarks.console --into docs/benchmarks.md

screenshots: $(VENV)/test.stamp  ## pictures of the console for the docs; into docs/images
	@$(BIN)/python -m docs.screenshots

chaos-compare: $(VENV)/test.stamp  ## the same faults for our controller mode and Apache's; into docs/fault-report.md
	@$(BIN)/python -m tests.interop.apache
	@$(BIN)/python -m benchmarks.chaos $(CHAOS_COMPARE) --into docs/fault-report.md

chaos: $(VENV)/run.stamp  ## faults under load for CHAOS="--minutes 30 …"; the report is .cache/chaos/report.md
	@$(BIN)/bolide chaos run $(CHAOS) --report .cache/chaos/report.md

docs: $(VENV)/dev.stamp  ## write the reference pages from the code and build the site
	@$(BIN)/python -m docs.reference
	@$(BIN)/mkdocs build --strict --quiet --site-dir site

clean:  ## remove what was made, caches included
	rm -rf $(VENV) .cache build site $(COMPILED:%=%/*.so)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Bolide needs Python 3.11 or newer; set PYTHON=/path/to/one")'
	@$(PYTHON) -m venv $(VENV)

# With Cython and a C compiler the install compiles the kernel; without them it is plain Python.
$(VENV)/build.stamp: $(VENV)/bin/python constraints.txt
	@$(PIP) setuptools wheel Cython
	@touch $@

$(VENV)/run.stamp: $(VENV)/build.stamp $(SOURCES)
	@$(PIP) --no-build-isolation --editable ".[console,mcp]"
	@touch $@

$(VENV)/test.stamp: $(VENV)/build.stamp $(SOURCES)
	@$(PIP) --no-build-isolation --editable ".[test]"
	@touch $@ $(VENV)/run.stamp

$(VENV)/fuzz.stamp: $(VENV)/build.stamp $(SOURCES)
	@$(PIP) --no-build-isolation --editable ".[fuzz]"
	@touch $@ $(VENV)/run.stamp $(VENV)/test.stamp

$(VENV)/dev.stamp: $(VENV)/build.stamp $(SOURCES)
	@$(PIP) --no-build-isolation --editable ".[test,lint,docs]"
	@touch $@ $(VENV)/run.stamp $(VENV)/test.stamp
