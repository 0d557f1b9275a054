# The two commands of the README, `make demo` and `make test`, each in an environment of its own under .venv/.
#
#   make demo                     sample eight schools
#   make test                     run the tests
#   make test FAST=1              without the slow ones
#   make test PYTHON=python3.12   with this interpreter; by default the newest Python from 3.11 to 3.14 on this machine
#   make test WORKERS=4 ARGS="-k normal"
#   make bench ARGS="--cases radon"   measure side by side with the peers; see benchmarks/__main__.py
#
# An environment is made once and reused until setup.cfg changes. The package is built and installed again when its
# sources change, so the tests run on what a user would install.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: demo test bench wheel environment clean

FAST ?=
WORKERS ?= 2
ARGS ?=
VENV ?= .venv

# Prints "<version> <path>" of each interpreter that runs and can make an environment (a pyenv shim may do neither).
describe = import sys, venv, ensurepip; v = sys.version_info; \
  (3, 11) <= v < (3, 15) and v.releaselevel == 'final' and print('%d.%d.%d' % v[:3], sys.executable)

# Where to look: where PYTHON= says, else everywhere. A version manager's folder is the way past its shim.
CANDIDATES := $(if $(PYTHON),$(PYTHON) $(HOME)/.pyenv/versions/$(PYTHON:python%=%)*/bin/python,\
  python3.14 python3.13 python3.12 python3.11 python3 python $(HOME)/.pyenv/versions/*/bin/python)
NEWEST := $(shell for python in $(CANDIDATES); do "$$python" -c "$(describe)" </dev/null 2>/dev/null; done \
  | sort -s -t. -k1,1nr -k2,2nr -k3,3nr | head -n 1)
VERSION := $(firstword $(NEWEST))
INTERPRETER := $(wordlist 2,99,$(NEWEST))
ifeq ($(VERSION),)
$(error No Python from 3.11 to 3.14 with venv and pip was found among: $(CANDIDATES). Install one or name it: PYTHON=/path/to/python3)
endif

DEMO := $(VENV)/demo-$(VERSION)
TEST := $(VENV)/test-$(VERSION)
SOURCES := $(shell find ppl -name '*.py' -o -name '*.json' -o -name '*.md' -o -name py.typed) setup.cfg pyproject.toml README.md

demo: $(DEMO)/installed
	$(DEMO)/bin/python -P -m ppl

test: $(TEST)/installed
	$(TEST)/bin/python -P -m pytest tests -n $(WORKERS) --dist worksteal $(if $(FAST),-m "not slow") $(ARGS)

# Makes an environment for each peer.
bench:
	"$(INTERPRETER)" -m benchmarks $(ARGS)

environment: $(TEST)/installed
	@echo $(TEST)/bin/python

# The built package goes in last and without its dependencies, which the environment already has.
$(VENV)/%/installed: $(VENV)/%/environment $(SOURCES)
	@echo "Installing ppl from this folder"
	@rm -rf build *.egg-info
	@$(@D)/bin/python -m pip install -q --no-build-isolation --no-deps --force-reinstall .
	@rm -rf build *.egg-info
	@touch $@

$(DEMO)/environment: EXTRA := arviz
$(TEST)/environment: EXTRA := test
$(VENV)/%/environment: setup.cfg Makefile
	@echo "Making $(@D) with Python $(VERSION) ($(INTERPRETER)); the first time, this downloads JAX"
	@rm -rf $(@D) build *.egg-info
	@"$(INTERPRETER)" -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check "setuptools>=77" wheel
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation ".[$(EXTRA)]"
	@rm -rf build *.egg-info
	@touch $@

# Two wheels of one commit have the same bytes: the time in the archives is that of the commit.
wheel: $(TEST)/environment
	@rm -rf build dist *.egg-info
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 1764460800)} \
	  $(TEST)/bin/python -m build --no-isolation
	@rm -rf build *.egg-info

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
