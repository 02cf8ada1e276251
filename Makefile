# Everything the project does, from a fresh clone: nothing is expected but python3 (3.11 or newer, with venv) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run
READY := $(VENV)/.ready
EXTRAS := serve oidc postgres redis s3 otel encryption heic mcp
EXTRA_APART := ray  # hundreds of megabytes: pinned, tested with dev, but not installed again to test the wheel
INSTALL := @$(PYTHON) requirements/install.py $(VENV)

unexport PYTHONDONTWRITEBYTECODE  # tests start some thousand Pythons: each would compile everything again

.DEFAULT_GOAL := help
.PHONY: help setup run demo test client client-types system check docs bench bench-celery bench-corpus bench-traces pictures chaos chaos-celery chaos-servers chaos-outages chaos-fairness chaos-hostile soak lock wheel audit sbom release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make the environment in .venv, with everything that tests and checks need

$(RUN): requirements/serve.txt requirements/build.txt requirements/install.py pyproject.toml
	$(INSTALL) serve build
	@touch $(RUN)

$(READY): requirements/dev.txt requirements/install.py pyproject.toml
	$(INSTALL) dev
	@touch $(RUN) $(READY)

run: $(RUN) ## the service with one big and five small customers, live; it says which address to open and with which key
	@$(BIN)/fairlane demo --serve

demo: $(RUN) ## one big and five small customers share a queue, live in this terminal, until all is worked off
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && trap 'exit 1' HUP INT TERM && \
	  $(BIN)/fairlane demo "$$folder" && $(BIN)/fairlane process "$$folder" --slots 2 --pace 100ms

test: system $(READY) client ## every test, on a clean machine too
	@echo "style, types and contracts; beside it the wheel, in three environments, and what it installs: about a minute"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync check sbom
	@$(BIN)/python -m tests

NODE_PACKAGES := clients/typescript/node_modules/.package-lock.json
NPM := $(BIN)/python -m tests.clients.node --prefix clients/typescript
client: $(NODE_PACKAGES) ## install what builds and tests the TypeScript client; part of make test

$(NODE_PACKAGES): clients/typescript/package-lock.json | $(READY)
	@$(NPM) ci --ignore-scripts --silent && touch $@ || echo "npm could not install the packages of clients/typescript"

client-types: $(READY) client ## make the types of the TypeScript client again, from the OpenAPI document
	@mkdir -p build && $(BIN)/python -c "import json; from fairlane.api.app import describe; print(json.dumps(describe()))" > build/openapi.json
	@FAIRLANE_OPENAPI=../../build/openapi.json $(NPM) run --silent generate

system: ## install the programs that tests need (PostgreSQL, Redis, tesseract, Chromium, …) where that is allowed: root and apt-get
	@$(PYTHON) -m tests.system

check: $(READY) ## style, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(READY) ## the documentation as a site, with search: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "open build/site/index.html"

bench: $(READY) system ## how fast, beside the bare engine in the same run; writes build/bench.json
	$(BIN)/python -m bench

bench-celery: $(READY) system ## a flood of Celery on RabbitMQ and on Redis, plain, with Fairlane and with the bridge, and how fast each drains; writes bench/celery.json
	$(BIN)/python -m bench.celery

bench-corpus: $(READY) system ## what Fairlane, pandoc and markitdown find in files of known structure: make bench-corpus TOOLS=python
	$(BIN)/python -m bench.corpus $(TOOLS:%=--python %) --by-way

bench-traces: $(READY) ## replay recorded workloads and compare with their table: make bench-traces TRACES=folder
	@test -n "$(TRACES)" || { echo "Say where the traces are: make bench-traces TRACES=folder"; exit 1; }
	$(BIN)/python -m bench.traces $(TRACES)

pictures: $(READY) system ## draw the pictures of docs/ again; that of the dashboard needs Prometheus and npm, and eight minutes
	$(BIN)/python -m bench.pictures
	$(BIN)/python -m bench.shots --docs
	$(BIN)/python -m bench.film
	@$(MAKE) --no-print-directory docs
	$(BIN)/python -m bench.site_pictures
	$(BIN)/python -m bench.dashboard

chaos-servers: $(READY) system ## a server that fails 20 times under load while 100 workers are killed; workers frozen past their lease
	$(BIN)/python -m chaos.servers --engine postgres
	$(BIN)/python -m chaos.frozen --engine postgres
	$(BIN)/python -m chaos.servers --engine redis
	$(BIN)/python -m chaos.frozen --engine redis
	$(BIN)/python -m chaos.servers --engine valkey
	$(BIN)/python -m chaos.frozen --engine valkey

chaos-outages: $(READY) system ## a service whose store is away for 10 to 150 seconds (refused, silent, no route), and a promoted standby; takes an hour
	$(BIN)/python -m chaos.standby
	$(BIN)/python -m chaos.outages --engine postgres
	$(BIN)/python -m chaos.outages --engine redis
	$(BIN)/python -m chaos.outages --engine postgres --fault silence --seconds 20,75
	$(BIN)/python -m chaos.outages --engine redis --fault silence --seconds 20,75
	$(BIN)/python -m chaos.outages --engine postgres --fault blackhole --seconds 20,75
	$(BIN)/python -m chaos.outages --engine redis --fault blackhole --seconds 20,75

chaos-fairness: $(READY) system ## shares of processing time by the clock, and limits of a kind while workers are killed, on every engine; takes a quarter of an hour
	@for engine in sqlite postgres redis valkey; do $(BIN)/python -m chaos.kind_limits --engine $$engine || exit 1; done
	$(BIN)/python -m chaos.shares
	$(BIN)/python -m chaos.shares --weight 2
	$(BIN)/python -m chaos.shares --weight 2 --lagging
	$(BIN)/python -m chaos.shares --weight 2 --engine postgres
	$(BIN)/python -m chaos.shares --weight 2 --engine redis

chaos-celery: $(READY) system ## the bridge to Celery: 100 kills of workers, 10 of the broker and 10 of feeders, on RabbitMQ and on Redis; takes half an hour
	$(BIN)/python -m chaos.celery
	$(BIN)/python -m chaos.celery --broker redis

chaos-hostile: $(READY) system ## 2,000 hostile connections without a key and 50 with one for five minutes, while another customer uploads
	$(BIN)/python -m chaos.hostile

chaos: $(READY) system ## kill -9 at random moments, 200 times, also of whole workers, then a disk that fails at every write and 20,000 damaged files, read plainly, in the sandbox and by a worker; takes some minutes
	$(BIN)/python -m chaos.kills
	$(BIN)/python -m chaos.workers
	$(BIN)/python -m chaos.disk
	$(BIN)/python -m chaos.files
	$(BIN)/python -m chaos.http
	$(BIN)/python -m chaos.uploads
	$(BIN)/python -m chaos.files --sandbox
	$(BIN)/python -m chaos.documents

soak: $(READY) ## the service under a steady load for an hour: memory, handles, stored files and the store must stay level
	$(BIN)/python -m chaos.soak

# An environment that has the wheel and the packages of these requirements files, and nothing else.
INSTALLED := build/installed
define installed
	@$(PYTHON) -m venv --without-pip $(INSTALLED)/$(1)
	@$(BIN)/python -m pip --python $(INSTALLED)/$(1)/bin/python install --quiet --no-compile --require-hashes $(2:%=-r requirements/%.txt)
	@$(BIN)/python -m pip --python $(INSTALLED)/$(1)/bin/python install --quiet --no-compile --no-deps build/wheel/*.whl
endef

wheel: $(READY) ## build the wheel and install it in empty environments: alone, with all extras but ray, with the lowest versions allowed
	@rm -rf build/wheel $(INSTALLED) && mkdir -p build
	@$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel . > build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	$(call installed,alone,run)
	$(call installed,extras,$(EXTRAS))
	$(call installed,lowest,lowest)

# The tools of audit and sbom bring many packages that nothing else needs: an environment of their own.
AUDIT := build/audit
$(AUDIT)/.ready: requirements/audit.txt $(READY)
	@$(PYTHON) -m venv --without-pip $(AUDIT)
	@$(BIN)/python -m pip --python $(AUDIT)/bin/python install --quiet --no-compile --require-hashes -r requirements/audit.txt
	@touch $@

audit: $(AUDIT)/.ready ## look every pinned package up in the advisory database of PyPI, or of OSV: make audit OPTIONS="--service osv"
	@$(AUDIT)/bin/python requirements/audit.py $(OPTIONS)

SBOM = $(AUDIT)/bin/cyclonedx-py environment --pyproject build/pyproject.toml --output-reproducible --output-file

sbom: wheel $(AUDIT)/.ready ## write what the wheel installs, alone and with all extras but ray, as CycloneDX: build/sbom-alone.json, build/sbom.json
	@sed "s/^dynamic = .*/version = \"$$($(BIN)/python -c 'import fairlane; print(fairlane.__version__)')\"/" pyproject.toml > build/pyproject.toml
	@$(SBOM) build/sbom-alone.json $(INSTALLED)/alone/bin/python
	@$(SBOM) build/sbom.json $(INSTALLED)/extras/bin/python

release-check: sbom ## what a release needs: sdist and wheel, their metadata, the licences of everything that they install
	@rm -rf build/release
	@$(BIN)/python -m build --no-isolation --outdir build/release . > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@$(AUDIT)/bin/twine check --strict build/release/*
	@$(BIN)/python requirements/licences.py build/sbom-alone.json build/sbom.json
	@$(BIN)/python requirements/release.py build/release

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url \
  --no-emit-find-links --custom-compile-command "make lock"
AS_IN_DEV := --constraint requirements/dev.txt --output-file

lock: $(READY) ## pin the newest versions of what we need, and the lowest that we allow, with hashes
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) pyproject.toml --upgrade --all-extras --group dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml $(AS_IN_DEV) requirements/run.txt
	$(COMPILE) --group build $(AS_IN_DEV) requirements/build.txt
	$(COMPILE) --group audit --upgrade --output-file requirements/audit.txt
	for extra in $(EXTRAS) $(EXTRA_APART); do $(COMPILE) pyproject.toml --extra $$extra $(AS_IN_DEV) requirements/$$extra.txt || exit 1; done
	$(COMPILE) pyproject.toml --upgrade --resolution lowest-direct $(EXTRAS:%=--extra %) --output-file requirements/lowest.txt

clean: ## remove what was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
