# env    everything for development in .venv
# demo   the main job on embedded parts
# check  formatting, lint, types, the house's import rules
# test   what CI runs: env, check and the tests of each day, by JOBS workers
# quick  the tests of a minute: no server, no Java, no Spark, no long audits, no compiled kernel
# nightly  all tests, every law with many more examples, ten million events against Kafka's own classes, ten rounds of races and kills, a million clients
# generate   man pages and the README's tables, from the code
# docs   the documentation as a site in build/site
# zipapp   dist/kquota.pyz: the base install as one file
# bench  the benchmarks

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Workers wait for servers most of the time: more of them than cores, for each has servers of its own, and these take memory.
JOBS ?= 5
# These tests compute.
QUICK_JOBS ?= 2
# The tests that ask Hypothesis and need no server.
LAWS := tests/core tests/documents tests/differential tests/backends/test_wire.py tests/backends/test_znode.py

# Tests start hundreds of interpreters, and Python's own files are many: each keeps what it compiled for the next.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help env demo check test quick nightly generate docs zipapp bench record clean compiled archives python prerequisites maven shell-tools prepared

help:
	@sed -n 's/^# \([a-z]* .*\)/make \1/p' Makefile

python:
	@command -v $(PYTHON) >/dev/null || { echo "kquota needs Python 3.11 or later: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "kquota needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo none): apt-get install python3.11 python3.11-venv, then make PYTHON=python3.11" >&2; exit 1; }

prerequisites: python
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { echo "kquota's sandbox and audit need a JDK 17 or later: apt-get install openjdk-17-jdk-headless" >&2; exit 1; }
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1 | { read major; test "$${major:-0}" -ge 17; } || { echo "kquota's sandbox and audit need a JDK 17 or later, and java on the path is older: apt-get install openjdk-17-jdk-headless" >&2; exit 1; }

maven:
	@command -v mvn >/dev/null || { echo "kquota's tests need Maven, for Kafka's own jars: apt-get install maven" >&2; exit 1; }

# The tests press Tab in each of the shells, read the manual, look at pages in a browser, and ask a Prometheus. In a container, as root, what is missing is installed.
shell-tools:
	@missing=; for tool in bash zsh fish man:man-db chromium prometheus go:golang-go; do command -v $${tool%:*} >/dev/null || missing="$$missing $${tool#*:}"; done; \
	test -z "$$missing" && exit; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		echo "installing$$missing, which the tests need" >&2; \
		apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else false; fi || { echo "kquota's tests need$$missing: apt-get install$$missing" >&2; exit 1; }

env: prerequisites $(STAMP)

# Python compiles what is imported, which is a tenth of all that pip would compile.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[audit,sasl,probe,sandbox,exporter]' --group dev
	@touch $@

demo: env
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash tests/demo.sh

check: env
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Several at a time: downloads need no core, and JVMs wait. Then the workers find machine code for the kernel, and JVMs
# their classes.
test: maven
	$(MAKE) --jobs=2 shell-tools env
	$(MAKE) --jobs=3 check prepared
	$(BIN)/python -m pytest --workers=$(JOBS) --daily

compiled: python $(STAMP)
	$(BIN)/python -m tests.support.compiled

archives: python $(STAMP)
	$(BIN)/python -m tests.support.archives

prepared: compiled archives

quick: python $(STAMP)
	$(BIN)/python -m pytest --workers=$(QUICK_JOBS) --daily --without-servers

nightly: maven shell-tools env prepared
	$(BIN)/python -m pytest --workers=$(JOBS)
	$(BIN)/python -m pytest --hypothesis-profile=nightly --timeout=7200 $(LAWS)
	RACE_ROUNDS=10 KILL_EVERY=1 JOURNAL_ROUNDS=50 $(BIN)/python -m pytest --timeout=7200 tests/faults/test_races.py tests/faults/test_kills.py tests/faults/test_cluster_journal.py
	SCALE=100 $(BIN)/python -m pytest --timeout=7200 tests/faults/test_scale.py

generate: env
	$(BIN)/python -m tools.generate

docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

# Who wants nothing else needs no Java and no Spark: pip is all that it takes.
zipapp: python
	$(PYTHON) -m venv build/zipapp
	build/zipapp/bin/python -m tools.pyz --out dist/kquota.pyz

bench: maven env
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.zookeeper
	$(BIN)/python -m benchmarks.protocol
	$(BIN)/python -m benchmarks.record
	$(BIN)/python -m benchmarks.audit
	$(BIN)/python -m benchmarks.prediction
	$(BIN)/python -m benchmarks.request_log
	$(BIN)/python -m benchmarks.follow
	$(BIN)/python -m benchmarks.stream
	$(BIN)/python -m benchmarks.state
	$(BIN)/python -m benchmarks.kernel
	$(BIN)/python -m benchmarks.simulate
	$(BIN)/python -m benchmarks.documents

record: maven env
	$(BIN)/python -m tools.recording.request_log --out tests/data/request_log

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
