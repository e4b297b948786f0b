# edged: the commands of its developers. `make run` and `make test` do all set-up.
PY := .venv/bin/python

.PHONY: run test bench hil system soak live format setup setup-test

run: setup
	.venv/bin/edged serve --sim

test: setup-test
	$(PY) -m pytest $(ARGS)

bench: setup-test
	$(PY) -m tests.bench $(ARGS)

soak: setup-test
	$(PY) -m pytest tests/soak -o "norecursedirs=data .*" -o timeout=3600 $(ARGS)

# Asks real search providers and sites: with the keys that tests/live/README.md names.
live: setup-test
	$(PY) -m pytest tests/live -o "norecursedirs=data .*" $(ARGS)

# One stage alone: make hil HIL=hil/uml
HIL := hil
hil: setup-test
	$(PY) -m pytest $(HIL) $(ARGS)

# The other release of Debian: make system EDGED_SYSTEM_SUITE=bookworm
system: setup-test
	$(PY) -m pytest tests/system -o "norecursedirs=data .*" $(ARGS)

format: setup-test
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .

setup:
	@sh .ci/setup run

setup-test:
	@sh .ci/setup test
