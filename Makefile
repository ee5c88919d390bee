# make demo    the whole pipeline on synthetic languages, then on Icelandic, ending with a report page
# make test    every test that is quick enough for every change
# make check   format, lint, types, direction of imports, wording
# make soak    the tests that take long
# make docs    the documentation site, into build/docs (start at index.html); every warning is an error
#
# Each target creates .venv first. Choose another interpreter with PYTHON=python3.12 (3.11 or later).

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# One thread a process: the tests run in as many processes as there are cores.
test: export OMP_NUM_THREADS = 1

.PHONY: demo test check soak docs venv

demo: venv
	$(BIN)/crossling demo -o demo

test: venv
	$(BIN)/pytest -n auto -m "not soak"

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/extract_python.py README.md build/readme_example.py
	$(BIN)/mypy src examples build/readme_example.py
	$(BIN)/python tools/check_wording.py
	$(BIN)/pytest tests/test_layout.py

soak: venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mteb]'
	$(BIN)/pytest -m soak -s

docs: venv
	$(BIN)/sphinx-build -W --keep-going -n -d build/doctrees docs build/docs

venv: $(READY)

# torch comes first and by exact version, so that a local build (for CPU, say) is preferred to a larger one.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crossling needs Python 3.11 or later: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[eval,train,data,onnx,lora,dev,docs]'
	touch $@
