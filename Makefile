PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check coverage docs docs-serve bench release lowest clean
.DELETE_ON_ERROR:

# The main job on real embedded data. Your own: make demo DEMO="--data table.csv --target label"
demo: $(STAMP)
	$(BIN)/lethe demo $(DEMO)

# A worker for each core, each with one thread: products of small matrices wait for each other otherwise.
# And each keeps the compiled tests: pytest's rewriting of 300 files takes 20 seconds of every worker otherwise.
unexport PYTHONDONTWRITEBYTECODE
WORKERS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check .
TYPES := $(BIN)/basedpyright
# The types of the package but for the faces of Trainers, and of what measures and builds with it but for what measures Trainers.
QUICK := $(filter-out %/__pycache__ %/integrations %/py.typed,$(wildcard lethe/*)) lethe_experiments \
	$(addprefix lethe/integrations/,__init__.py dp_accounting logging training.py)
CHECKED := $(QUICK) tools $(filter-out benchmarks/finetune_%,$(wildcard benchmarks/*.py))

# Everything CI runs: lint, types, import contract, the tests but for those of the night. Lint runs beside the tests, which start with one core
# and end with one; what it says stands after what they say. The types of the tests take five minutes of a processor, and those of what
# imports transformers one, for they import half of that: `make lint` and `make nightly` check them.
test: $(STAMP)
	$(WORKERS) $(BIN)/python tools/beside.py '$(LINT) && $(TYPES) $(CHECKED)' \
		$(BIN)/python -m pytest -m "not nightly" -n auto --dist worksteal

# The types of all files, and every case of every test: more replicates of audits, more architectures, more random runs and four times the
# examples of hypothesis than there is time for at each commit.
.PHONY: nightly
nightly: $(STAMP)
	$(WORKERS) $(BIN)/python tools/beside.py '$(LINT) && $(TYPES)' $(BIN)/python -m pytest --hypothesis-profile=night -n auto --dist worksteal

# Fast: what to run all the time: lint, the import contract, the tests of single functions. Of one package: make check PKG=calculus
PKG :=
check: $(STAMP)
ifdef PKG
	$(BIN)/ruff check lethe/$(PKG) tests/unit/$(PKG)
	$(WORKERS) $(BIN)/python -m pytest -q -m "not nightly" tests/unit/$(PKG)
else
	$(WORKERS) $(BIN)/python tools/beside.py '$(LINT) && $(BIN)/lint-imports' \
		$(BIN)/python -m pytest -q -m "not nightly" -n auto --dist worksteal tests/unit
endif

# Which lines of lethe/ no test runs; fails below 95 %.
coverage: $(STAMP)
	$(WORKERS) $(BIN)/python -m pytest -q -n auto --dist worksteal --cov --cov-report=term-missing:skip-covered

# Lint and the types of all files.
.PHONY: lint
lint: $(STAMP)
	$(LINT) && $(TYPES)

# The site, in site/; fails on a broken link, and on an example that does not run.
MKDOCS := NO_MKDOCS_2_WARNING=1 PYTHONPATH=tools $(BIN)/mkdocs
docs: $(STAMP)
	$(MKDOCS) build

docs-serve: $(STAMP)
	$(MKDOCS) serve

# The screenshot that a page shows, made by a test in a browser.
.PHONY: pictures
pictures: $(STAMP)
	LETHE_PICTURES=1 $(WORKERS) $(BIN)/python -m pytest -q tests/train/studio/test_studio_in_browser.py

# The tutorials as notebooks, from their pages.
.PHONY: notebooks
notebooks: $(STAMP)
	PYTHONPATH=tools $(BIN)/python tools/notebooks.py

bench: $(STAMP)
	$(BIN)/python benchmarks/certificate_speed.py
	$(BIN)/python benchmarks/sampled_gaussian_speed.py
	$(BIN)/python benchmarks/joint_schedule_speed.py
	$(BIN)/python benchmarks/noise_schedules.py

# How good a private model can be, of the page docs/records.md: make records DATA=FOLDER [RECORDS="--datasets digits"]
.PHONY: records
records: $(STAMP)
	$(WORKERS) $(BIN)/python benchmarks/utility_records.py $(if $(DATA),--data $(DATA)) $(RECORDS)

# The long search for holes; CI runs a short part of it as tests.
.PHONY: fuzz
fuzz: $(STAMP)
	$(BIN)/python tests/laws/fuzz/fuzz_accounting.py
	$(BIN)/python tests/laws/fuzz/fuzz_training.py

# Wheel and sdist, and the wheel tried in an environment that holds nothing else.
release: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt build
	rm -rf dist build/wheel
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet dist/*.whl
	cd build/wheel && bin/lethe --version && bin/lethe certify ../../examples/last_iterate.yaml --delta 1e-6

# What a new user does first, from the wheel to an audit, with how long each step takes.
.PHONY: new-user
new-user: $(STAMP)
	$(BIN)/python tools/new_user.py

# The oldest versions that pyproject.toml allows; what trains is left out, since PyTorch's oldest weighs gigabytes.
lowest:
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet uv
	build/lowest/bin/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct -e ".[dp-accounting]" "pytest>=8.2" "hypothesis>=6.100" "mpmath>=1.3"
	build/lowest/bin/python -m pytest -q -p no:cacheprovider tests/unit/calculus tests/unit/run tests/unit/documents

# Adapters by the version of peft from which on weights under Opacus did not move (its issue 820).
.PHONY: old-peft
old-peft: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --target build/peft-0.14 peft==0.14.0
	PYTHONPATH=build/peft-0.14 $(WORKERS) $(BIN)/python -m pytest --hypothesis-profile=night -n auto tests/train/zoo/test_adapters.py

# Flower asks for older versions than the rest; its messages and strategies, which are all that is tested, run with these.
FLOWER := flwr grpcio-health-checking httpcore httpx iterators pycryptodome

# One set-up for all targets; the stamp is renewed when the project's needs change.
$(STAMP): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all,dev,docs]"
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt $(FLOWER)
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist lethe-demo site .coverage* .pytest_cache .ruff_cache .hypothesis .import_linter_cache
