# Sets itself up on first use, in .venv; needs make and Python 3.11 or newer.

VENV := .venv
BENCH_VENV := .venv-bench
PY := $(VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

# The Python to set up with: the first that is new enough, unless given.
PYTHON ?= $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11,\
    $(shell $(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))

# Prints what the package needs, with the extra "all".
REQUIREMENTS := import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
    print(*project["dependencies"], *project["optional-dependencies"]["all"], sep="\n")

# The CUDA release that CuPy is installed for: 12 or 13.
CUDA ?= 13

# What speed is compared with.
BASELINE := $(shell sed -n 's/^BASELINE = "\(.*\)"/\1/p' benchmarks/baseline.py)

# What clang-format looks after.
CPP := $(shell find kernels tests/platforms -name '*.h' -o -name '*.cpp' -o -name '*.c')

# Windows need a display; without one, a virtual one is put around the command.
HAS_DISPLAY := $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname -s))
WITH_DISPLAY := $(if $(HAS_DISPLAY),,xvfb-run -a -s "-screen 0 1280x1024x24")

.DEFAULT_GOAL := help
.PHONY: help demo test test-cuda test-all test-peers test-random damaged lint lint-python lint-style lint-kernels format wheels test-platforms sanitize \
    bench bench-gpu baseline screenshots small-screens test-napari release-check docs clean system-packages

help: ## list what can be made
	@echo "usage: make TARGET [PYTHON=python3.13]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.with-napari ## fit a simulated movie in napari; with no display, save demo.png and demo.csv
	$(WITH_DISPLAY) $(PY) docs/demo.py $(if $(HAS_DISPLAY),,--save)

test: lint-style ## check style, and run all tests but those of CUDA code
	tools/run_tests.sh $(PY)

test-cuda: $(VENV)/.with-dev ## compile all CUDA code, which needs no GPU, and run it on the CPU
	$(PY) -m pytest --hypothesis-profile ci --numprocesses logical tests/engine/cuda

test-all: test test-cuda docs test-random damaged lint release-check test-platforms sanitize test-peers ## the same, and all that needs other programs

test-random: $(VENV)/.with-dev ## run the tests of random examples with new ones
	$(WITH_DISPLAY) $(PY) -m pytest -m hypothesis --numprocesses logical

test-peers: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m pytest tests/test_peers.py

damaged: $(VENV)/.with-dev ## read 3000 damaged tables and 3000 damaged images, and count how they end
	$(PY) benchmarks/damaged_files.py --tables 3000 --images 3000

lint: lint-python lint-kernels $(VENV)/.with-actionlint ## check style, types and the CI workflows
	$(VENV)/bin/actionlint

lint-python: lint-style
	$(PY) -m mypy

lint-style: $(VENV)/.with-dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m codespell_lib
	$(PY) tools/layouts.py --if-changed

lint-kernels: $(VENV)/.with-dev
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)

format: $(VENV)/.with-dev ## put line breaks and spaces where lint wants them
	$(PY) -m ruff format
	$(VENV)/bin/clang-format -i $(CPP)

wheels: $(VENV)/.with-dev ## build the package for every platform, into dist/
	rm -rf dist
	$(PY) -m build --no-isolation --sdist
	for target in $$($(PY) tools/build_library.py --targets); do \
	    NAPARI_SPOTFIT_TARGET=$$target $(PY) -m build --no-isolation --wheel || exit 1; done

release-check: wheels $(VENV)/.with-release ## check the wheels, alone and in the oldest and newest napari
	$(WITH_DISPLAY) $(PY) tools/check_release.py

test-platforms: $(VENV)/.with-dev ## run the libraries for arm64 and Windows, with QEMU and Wine
	$(PY) tests/platforms/check.py

sanitize: $(VENV)/.with-dev ## run the engine's tests with clang's sanitizers in the CPU library
	tools/sanitize_library.sh $(PY)

test-napari: | system-packages ## run the widget's tests with every supported napari; write docs/napari-versions.md
	$(PYTHON) tools/test_napari.py

bench: $(BENCH_VENV)/.installed baseline ## measure accuracy, speed and latency, beside other programs and the baseline
	$(BENCH_VENV)/bin/python benchmarks/accuracy.py
	$(BENCH_VENV)/bin/python benchmarks/astigmatism.py
	$(BENCH_VENV)/bin/python benchmarks/trust.py
	$(BENCH_VENV)/bin/python benchmarks/detection.py
	$(BENCH_VENV)/bin/python benchmarks/cpu.py
	$(BENCH_VENV)/bin/python benchmarks/volumes.py
	$(BENCH_VENV)/bin/python benchmarks/volume_detection.py
	$(BENCH_VENV)/bin/python benchmarks/measured_psf.py
	$(BENCH_VENV)/bin/python benchmarks/crowds.py
	$(BENCH_VENV)/bin/python benchmarks/crowds_by_light.py
	$(BENCH_VENV)/bin/python benchmarks/crowds_in_depth.py
	$(BENCH_VENV)/bin/python benchmarks/channels.py
	$(BENCH_VENV)/bin/python benchmarks/after_the_fit.py --others
	$(BENCH_VENV)/bin/python benchmarks/render.py
	$(BENCH_VENV)/bin/python benchmarks/latency.py --only cpu many
	$(BENCH_VENV)/bin/python benchmarks/streaming.py --frames 4000
	$(BENCH_VENV)/bin/python benchmarks/files.py --only python experiment
	$(BENCH_VENV)/bin/python benchmarks/tracking.py
	$(BENCH_VENV)/bin/python benchmarks/against.py

bench-gpu: $(BENCH_VENV)/.with-cuda baseline ## measure the speed on an NVIDIA GPU; CUDA=12 for older drivers
	$(BENCH_VENV)/bin/python benchmarks/gpu.py
	$(BENCH_VENV)/bin/python benchmarks/latency.py --only gpu
	$(BENCH_VENV)/bin/python tools/time_launches.py
	$(BENCH_VENV)/bin/python benchmarks/gpu_against.py

baseline: build/baseline/.$(BASELINE) ## put the commit that speed is compared with into build/baseline

build/baseline/.$(BASELINE): | $(BENCH_VENV)/.installed
	rm -rf build/baseline
	mkdir -p build/baseline
	git archive $(BASELINE) | tar -x -C build/baseline
	ln -s ../../kernels ../../napari.yaml build/baseline/src/napari_spotfit/
	$(BENCH_VENV)/bin/python build/baseline/tools/build_library.py
	touch $@

docs: $(VENV)/.with-docs ## build the documentation into build/docs; its tutorials run
	$(PY) -m sphinx --fail-on-warning --keep-going --fresh-env -d build/docs-cache docs build/docs

screenshots: $(VENV)/.with-napari ## take the pictures of the documentation
	$(WITH_DISPLAY) $(PY) docs/screenshots.py

small-screens: $(VENV)/.with-napari ## take pictures of all widgets on small screens, at 100 % and 150 %
	$(if $(HAS_DISPLAY),,xvfb-run -a -s "-screen 0 1920x1200x24") $(PY) docs/small_screens.py

clean: ## remove everything that make has made
	rm -rf $(VENV) $(VENV)-* build dist demo.png demo.csv .hypothesis .*_cache
	rm -rf src/napari_spotfit/napari.yaml src/napari_spotfit/kernels
	rm -f src/napari_spotfit/engine/cpu/libspotfit.* src/napari_spotfit/engine/cpu/layouts.py
	find . -name __pycache__ -prune -exec rm -rf {} +

system-packages:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found." \
	    "Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@tools/system-packages.sh "$(PYTHON)"

# Stamp files: an environment is installed again only when its recipe has changed.

$(VENV)/.created $(BENCH_VENV)/.created: | system-packages
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python $(PIP_INSTALL) --upgrade "pip>=25.1"
	touch $@

# trackpy has no wheels, and setuptools that come with a Python may be too old to make one. The
# library is compiled while packages are downloaded and unpacked: pip would do it before.
$(VENV)/.with-napari: $(VENV)/.created pyproject.toml hatch_build.py | system-packages
	$(PY) $(PIP_INSTALL) --group build "setuptools>=70.1"
	@mkdir -p build
	@$(PY) -c '$(REQUIREMENTS)' >build/requirements.txt
	$(PY) tools/build_library.py & library=$$!; \
	    $(PY) $(PIP_INSTALL) --no-build-isolation --requirement build/requirements.txt; \
	    packages=$$?; wait $$library && exit $$packages
	$(PY) $(PIP_INSTALL) --no-build-isolation --editable ".[all]"
	touch $@

$(VENV)/.with-dev: $(VENV)/.with-napari
	$(PY) $(PIP_INSTALL) --group dev
	touch $@

$(VENV)/.with-release: $(VENV)/.with-dev
	$(PY) $(PIP_INSTALL) --group release
	touch $@

$(VENV)/.with-docs: $(VENV)/.with-napari
	$(PY) $(PIP_INSTALL) --group docs
	touch $@

$(VENV)/.with-actionlint: $(VENV)/.created pyproject.toml
	$(PY) $(PIP_INSTALL) --group workflows
	touch $@

$(BENCH_VENV)/.installed: $(BENCH_VENV)/.created pyproject.toml hatch_build.py
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) --editable . --group bench
	touch $@

$(BENCH_VENV)/.with-cuda: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) --editable ".[cuda$(CUDA)]"
	touch $@
