.DEFAULT_GOAL := help
.PHONY: help install demo test test-rest test-all lint format schemas bench bench-parts eval drills soak lock sbom audit clean

VENV ?= .venv
BIN := $(VENV)/bin
UV ?= uv
JOBS ?= 2
REST_JOBS ?= 3
ROUNDS ?= 1
RESOLVE = $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate
STAMP := $(VENV)/.installed

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv with everything, from the hash-locked requirements

$(STAMP): requirements.lock pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 >= 3.11 is needed, this is $$(python3 --version)"; exit 1; }
	@python3 -m venv $(VENV) || { echo "python3 has no venv module; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing into $(VENV) (about a minute the first time) ..."
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: install ## Analyse an example incident with an embedded NATS server, cluster and analyst
	@$(BIN)/rca demo

# The quick tests run first, then the others; none runs twice. tests/conftest.py says which tests are quick.
# Half of the time of the others is waiting, so that three at a time suit two cores.
PYTEST = $(BIN)/python -m pytest
QUICK := -m "not process and not slow"
OTHERS := -m "process or slow"
COVERAGE := --cov --cov-report= --cov-fail-under=0
DOMAIN_COVERAGE := 97

test: install ## Run the quick tests (3 min)
	$(PYTEST) -n $(JOBS) $(MEASURED) $(QUICK)

test-rest: install ## Run the other tests, then check the coverage of both (run make test MEASURED=... first)
	$(PYTEST) -n $(REST_JOBS) --dist loadgroup $(COVERAGE) --cov-append $(OTHERS)
	$(BIN)/coverage report
	$(BIN)/coverage report --include='schemas/*,worker/domain/*' --fail-under=$(DOMAIN_COVERAGE)

test-all: export HYPOTHESIS_PROFILE := ci
test-all: ## Run all tests and check the coverage (20 min)
	@$(MAKE) test MEASURED='$(COVERAGE)'
	@$(MAKE) test-rest

lint: install ## Check style, types, imports, dependencies and the generated schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python -m schemas.export --check

format: install ## Format the code with ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schemas: install ## Generate schemas/v1 from the models
	$(BIN)/python -m schemas.export

bench: install ## Measure what an incident costs, and compare it with the targets (3 min; ROUNDS=5 for medians)
	$(BIN)/python -m tests.bench --rounds $(ROUNDS)

bench-parts: install ## Measure single parts, PostgreSQL and the quality of searches
	$(BIN)/python -m tests.bench --parts

eval: install ## Score the rules of diagnosis, variants of the incidents, and the shipped policy (6 min)
	$(BIN)/python -m tests.eval_corroboration
	$(BIN)/python -m tests.eval_gate
	$(BIN)/python -m tests.eval_variants

drills: install ## Kill, freeze, cut off and flood real processes, and print the results (25 min)
	$(BIN)/python -m tests.drills

soak: install ## Run a steady load to find leaks (12 min)
	$(BIN)/python -m tests.drills soak

lock: ## Update the hash-locked requirements (needs uv)
	@command -v $(UV) >/dev/null || { echo "uv is not installed: pip install uv, or make lock UV=/path/to/uv"; exit 1; }
	$(RESOLVE) --all-extras --group dev pyproject.toml -o requirements.lock
	$(RESOLVE) -c requirements.lock --extra mcp --extra otel --extra postgres pyproject.toml -o deploy/requirements-image.lock
	echo "hatchling>=1.27" | $(RESOLVE) -c requirements.lock - -o deploy/requirements-build.lock

sbom: install ## Write sbom.cdx.json, the components of the container image (CycloneDX)
	@$(BIN)/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
	  -o sbom.cdx.json deploy/requirements-image.lock
	@echo "sbom.cdx.json: $$(grep -c '"purl"' sbom.cdx.json) components"

audit: install ## Check every locked package for known vulnerabilities (needs the internet)
	@$(BIN)/pip-audit --require-hashes --disable-pip -r requirements.lock

clean: ## Remove .venv and all generated files
	rm -rf $(VENV) build dist *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
