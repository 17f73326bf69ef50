# Short verbs for everyday work. `make` alone lists them. Python 3.11 to 3.14 and Java 17 to 25 is all they need.

PYTHON ?= python3
SEEDS ?= 300
KILLS ?= 3
TIMES ?= 4
NODES ?= 1
TESTS ?= tests/real
WORKERS ?= 2
SECONDS ?= 60
# Tests on a real broker wait often, for what others do: a third one has the processors then.
REAL_WORKERS ?= 3
# A machine that cannot reach the default registry names another with the usual variables of pip.
BIN := .venv/bin
READY := .venv/ready
# The build that ships has its hot path compiled into C (setup.py says how); `pure` is all Python, and edits need no build.
BUILD ?= pure
# What runs beside others and is to take only what they leave, `make NICE=nice`.
NICE ?=
SHIPPED ?= $(shell $(or $(wildcard $(BIN)/python),$(PYTHON)) -c 'import os, shutil, subprocess, sysconfig as s; cc = s.get_config_var("CC").split(); print("compiled" if shutil.which(cc[0]) and not subprocess.call([*cc, "-E", "-I", s.get_path("include"), "-include", "Python.h", "-x", "c", os.devnull], stdout=-3, stderr=-3) else "pure")')
COMPILED := build/compiled
SANITIZED := build/sanitized
SOURCES := $(shell find holdfast -type f ! -path '*/__pycache__/*')
RUN := $(if $(filter compiled,$(BUILD)),BUILD_UNDER_TEST=compiled PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/$(COMPILED):$(CURDIR)" )$(NICE) $(BIN)/python
NEEDS := $(READY) $(if $(filter compiled,$(BUILD)),$(COMPILED)/ready)
# Each worker begins with neighbours, and takes over from another when it is done.
SPREAD := --numprocesses $(WORKERS) --dist worksteal
PYTEST := $(RUN) -m pytest $(SPREAD)
# The tests of a file share brokers, nodes and Spark; whoever is done takes the next file, and the longest come first (tests/real/conftest.py).
FILES := --numprocesses $(REAL_WORKERS) --dist loadfile --no-loadscope-reorder
KILLING := tests/real/node/test_kill.py tests/real/node/test_freeze.py tests/real/job/test_compaction_kill.py
OUTAGES := tests/real/log/test_broker_restarts.py
# The rooms that setup.py compiles, which a test compares; the other tests say the same of either build.
OF_WHAT_IS_COMPILED := $(addprefix tests/pure/,kafka api delivery records runtime metrics daemon/server share daemon/access daemon/partitions daemon/topics test_clock.py)
# A stamp of each set of wheels: what has not changed is not built again.
WHEELS := dist/.$(SHIPPED)
# Spark's are written first.
KAFKA_CLASSES := build/kafka-classes.jsa
# What runs side by side is shown target by target, where make can do that.
BY_TARGET := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# A run starts some hundred Pythons: they keep what they compile, whatever the caller's environment says, where `clean` finds it.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode

.DEFAULT_GOAL := help
.PHONY: help demo test check fmt lint type contracts vectors pure fuzz sanitize sim model real interop browser pictures installed shipped waiting beside after busy stalled soak endure outages hotpath bench measure compiled wheel docs zip clean interpreted patched FORCE

help: ## list the verbs
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer; name one with make PYTHON=python3.11.")'
	@echo "Making the environment .venv from requirements.lock"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# Most of the files are never imported, and Python compiles those that are.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(READY)

# Their names, so that one which is gone is seen; a directory would tell of Python's caches too.
build/sources: FORCE
	@mkdir -p build
	@now=$@.$$$$; printf '%s\n' $(sort $(SOURCES)) > $$now; cmp -s $$now $@ && rm $$now || mv $$now $@

$(COMPILED)/ready: $(READY) setup.py build/sources $(SOURCES)
	@echo "Compiling the hot path, which takes some minutes"
	@rm -rf build/lib* build/bdist* build/wheel $(COMPILED)
	@MYPY_CACHE_DIR="$(CURDIR)/build/mypy_cache" COMPILE_HOLDFAST=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir build/wheel .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) build/wheel/*.whl
	@touch $@

demo: $(READY) ## a queue whose daemon and worker are killed midway; then Spark folds the log, the past is asked, and stock consumers come (NODES=3)
	@$(BIN)/python -m demo --nodes $(NODES)

test: $(READY) ## everything that a change must pass
	@test $(SHIPPED) = compiled || echo "Without a C compiler and Python's headers, the tests on a real broker run on the pure build."
	$(MAKE) --jobs 3 $(BY_TARGET) shipped waiting beside after

check: fmt lint type contracts

# The brokers and Spark of the tests start in little more than half the time with it, and without it where nobody made it.
$(KAFKA_CLASSES): $(READY) tests/real/quick_java.py tests/real/job/quick_spark.py holdfast/jars/cache.py
	@$(BIN)/python -m tests.real.quick_java

fmt: $(READY) ## is the code formatted? (`make fmt FIX=1` formats it)
	$(BIN)/ruff format $(if $(FIX),,--check) .

lint: $(READY) ## ruff, and the words of pages and docstrings (`make lint FIX=1` mends what it can)
	$(BIN)/ruff check $(if $(FIX),--fix) .
	$(BIN)/python -m tools.words --check

type: $(READY) ## mypy --strict
	$(BIN)/mypy

contracts: $(READY) ## which package may import which
	$(BIN)/lint-imports

vectors: $(NEEDS) ## answers recorded from Apache Kafka's own classes
	$(RUN) -m tests.vectors tests/vectors/data

pure: $(NEEDS) ## tests that need nothing
	$(PYTEST) tests/pure tests/fuzz tests/vectors

# What `make test` runs on the pure build where another one ships: all that is not compiled, and what patches or stands in for sources.
interpreted: $(READY)
	@# In one process: the compiler has the other processor, and a second one would import all tests again.
	$(RUN) -m pytest tests/pure tests/vectors $(addprefix --ignore=,$(OF_WHAT_IS_COMPILED))

patched: $(READY)
	$(PYTEST) -m pure_build $(shell grep -rlw pure_build --include='*.py' $(OF_WHAT_IS_COMPILED) tests/simulated)

model: $(READY) ## the model of the log protocol, small scopes and all mutants
	$(PYTEST) tests/model

sim: $(NEEDS) ## whole lives of several nodes over a log in memory (SEEDS=10000 for many), each lived once
	$(PYTEST) tests/simulated
	$(RUN) -m tests.simulated --untested --seeds $(SEEDS)

hotpath: $(NEEDS) ## the pure tests of what is compiled where BUILD=compiled, and the vectors
	$(PYTEST) $(OF_WHAT_IS_COMPILED) tests/fuzz tests/vectors

# The parts of `make test`. Two processors have work from the beginning to the end: what needs no build computes while the compiler does,
# and what waits (for brokers, pip, Java, nodes) runs beside what computes, which takes what is left.
shipped: $(WHEELS) $(KAFKA_CLASSES)
	$(MAKE) BUILD=$(SHIPPED) real

waiting: $(WHEELS) $(KAFKA_CLASSES)
	$(MAKE) BUILD=pure installed
	$(MAKE) BUILD=pure interop
	$(MAKE) BUILD=pure browser

beside: $(READY)
	$(MAKE) BUILD=pure NICE=nice check
	$(MAKE) BUILD=pure NICE=nice $(if $(filter compiled,$(SHIPPED)),interpreted patched,pure sim) model

after: beside $(WHEELS)
	$(if $(filter compiled,$(SHIPPED)),$(MAKE) BUILD=compiled NICE=nice hotpath sim)

real: $(NEEDS) ## tests on a real broker, which they start themselves (KILLS=3)
	KILLS=$(KILLS) $(RUN) -m pytest $(FILES) tests/real

interop: $(NEEDS) ## Apache Kafka's own Java classes against the daemon
	$(PYTEST) tests/interop

pictures: $(READY) ## take the pictures of the page in README.md again, of a real run
	WRITE_PICTURES=1 $(RUN) -m pytest tests/real/page/test_readme_pictures.py

browser: $(READY) ## the page in Chromium; pictures of it are in build/screenshots
	@# In one process: it is one browser for all, and that has processes of its own.
	$(RUN) -m pytest tests/browser

installed: $(WHEELS) ## what the pages tell to type, with the wheels, each in an environment of its own
	@# In one process, so that an environment is made once, and in their order: the last ones lend PySpark to the
	@# environment that the first ones look at without it.
	WHEELS="pure $(filter compiled,$(SHIPPED))" $(BIN)/python -m pytest -rP -p no:randomly tests/installed

fuzz: $(READY) ## decoders of bytes from outside, led by the code that inputs reach (SECONDS=60 for each)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=2.3,<4'
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# A copy of the compiled build with those extensions built once more; whatever C leaves undefined, or touches outside of an object, ends the run.
sanitize: $(COMPILED)/ready ## what is written in C under gcc's sanitizers, with the tests that drive it
	@rm -rf $(SANITIZED) && cp -r $(COMPILED) $(SANITIZED)
	@include=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') && cd $(SANITIZED) && for twins in $$(find holdfast -name 'twins.*.so'); do \
		gcc -shared -fPIC -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -I"$$include" "$(CURDIR)"/$${twins%/*}/*.c -o $$twins || exit 1; done
	@# Python's own allocator would hide where an object ends, and Python keeps what lives until its end.
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 BUILD_UNDER_TEST=compiled PYTHONSAFEPATH=1 \
		PYTHONPATH="$(CURDIR)/$(SANITIZED):$(CURDIR)" $(BIN)/python -m pytest tests/fuzz $(shell grep -rlw 'native import .*twins' --include='test_*.py' tests/pure)

busy: $(NEEDS) ## TESTS beside a busy loop on every processor, so many TIMES, and the tally
	KILLS=$(KILLS) $(RUN) -m tests.busy --times $(TIMES) $(SPREAD) $(TESTS)

stalled: $(NEEDS) ## TESTS while their event loops stall now and then
	@# They sleep in the stalls, so many fit on a processor.
	$(RUN) -m pytest --numprocesses 8 --dist worksteal -p tests.stalls $(TESTS)

soak: $(READY) ## the long forms: many lives, every scope of the model, twenty kills
	$(BIN)/python -m tests.simulated.mutants
	$(BIN)/python -m tests.model.checker
	$(BIN)/python -m tests.model.checker --rules manifests
	$(BIN)/python -m tests.model.checker --mutants
	$(MAKE) fuzz
	$(MAKE) BUILD=$(SHIPPED) endure

endure: $(NEEDS)
	$(RUN) -m tests.simulated --seeds 10000
	$(PYTEST) tests/pure tests/vectors
	$(MAKE) BUILD=$(BUILD) TESTS=tests/pure stalled
	KILLS=20 JOB_KILLS=10 DAEMON_KILLS=5 PAUSE_MS=0 $(RUN) -m pytest --capture=no $(KILLING)
	CUTS=all $(RUN) -m pytest --capture=no tests/real/membership/test_cut_links.py
	MOVES=5 PAUSE_MS=0 $(RUN) -m pytest --capture=no tests/real/log/test_leader_moves.py
	SPARK_WORKERS=2 $(RUN) -m pytest tests/real/job/test_standalone_spark.py
	PAGE_KAFKAS=all $(RUN) -m pytest tests/real/page/test_other_kafkas.py
	HISTORY_LONG=1 $(RUN) -m pytest tests/real/job/test_job_failures.py tests/real/job/test_joined_history.py
	SECURED_LONG=1 $(RUN) -m pytest tests/real/secured
	HAND_OVER_UPDATES="100000 2000000" $(RUN) -m pytest --capture=no tests/real/node/test_hand_over.py
	SHARE_LIVES=1000 $(RUN) -m pytest --capture=no tests/interop/gateway/test_share_differential.py
	LEDGER_S=1800 $(RUN) -m pytest --capture=no -o faulthandler_timeout=7200 tests/real/gateway/test_ledger_chaos.py
	CHAOS_S=600 CHAOS_BROKERS=3 CHAOS_CALLERS=32 $(RUN) -m pytest --capture=no -o faulthandler_timeout=3600 tests/real/membership/test_chaos.py
	ROLLS=1 ROLL_UPDATES="0 100000 2000000" $(RUN) -m pytest --capture=no -o faulthandler_timeout=3600 tests/real/membership/test_rolling_restart.py
	$(MAKE) BUILD=$(BUILD) outages

outages: $(NEEDS) ## brokers restarted, frozen and away under one node, and half an hour in which nothing happens
	PAUSE_MS=0 RESTARTS=20 ROUNDS=10 OUTAGE_S=480 FREEZE_S=120 IDLE_S=1800 $(RUN) -m pytest --capture=no -o faulthandler_timeout=3600 $(OUTAGES)

bench: ## Holdfast and Apache Kafka's share coordinator, side by side (OPTIONS="--only rf1"; OF=benchmarks.node.compare: another one)
	@$(MAKE) --no-print-directory BUILD=$(SHIPPED) measure

measure: $(NEEDS)
	$(RUN) -m $(or $(OF),benchmarks) $(OPTIONS)

compiled: $(COMPILED)/ready ## the build that ships, in build/compiled; BUILD=compiled runs tests on it

$(WHEELS): $(READY) setup.py pyproject.toml README.md LICENSE build/sources $(SOURCES) $(if $(filter compiled,$(SHIPPED)),$(COMPILED)/ready)
	@rm -rf dist build/lib build/bdist*
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .
	@$(if $(filter compiled,$(SHIPPED)),cp build/wheel/*.whl dist/)
	@touch $@

wheel: $(WHEELS) ## the wheels, pure and, where there is a C compiler, compiled: in dist
	@ls dist

zip: $(READY) ## our code as a zip for Spark's workers, build/holdfast.zip
	$(BIN)/python -m holdfast compact --write-py-files build/holdfast.zip

docs: $(READY) ## write the pages that are made from the code
	$(BIN)/python -m tools.settings_reference > docs/configuration.md
	$(BIN)/python -m tools.cli_reference > docs/cli.md

clean: ## remove the environment and every cache in this directory
	rm -rf build .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache holdfast_kafka.egg-info
