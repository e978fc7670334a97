"""The tiers of `make test-fast`, `test` and `test-all`: which tests are in which.

`pytest --record` measures the fast tier with the tests in `slow.txt`, and writes into that file.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from math import isqrt
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PROVED = "test_step_is_proved_and_every_rank_computes_it"
RIGHT = "test_right_programs_are_proved_and_wrong_ones_are_refuted"
LARGE = (
    *("chunked_cross_entropy", "contrastive", "decode_cache", "online_softmax", "padded_vocab"),
    *("ring_merge", "shifted_labels", "smoothed_loss", "sync_batch_norm", "ulysses"),
    "window_ring",
)
"""Programs of which every run judges the small ones, right and wrong."""
STRATEGIES = (
    *("balanced experts", "data and expert parallel", "data and tensor parallel"),
    *("pipeline of four stages", "zero 1", "stages with tied embedding in repeated micro-batches"),
)
"""Strategies of which every part stands in another one."""
REWRITES = "test_rewrites_keep_the_values_and_are_never_refuted"
REWRITTEN = (
    *("average of equal values", "linear op moved across an all-reduce", "transposed product"),
    *("product distributed over a sum", "sum times 1/n for average"),
)
"""Rewrites of programs that take long."""
CUSTOM = ("causal_softmax", "chunked_cross_entropy", "cuda_bias_gelu", "tiled_attention")
BACKWARD = "test_a_backward_by_hand_is_captured_and_its_patch_proved"
CAMPAIGNS = (
    f"test_deepseek.py::{PROVED}[stages]",
    f"test_deepseek.py::{PROVED}[stages in repeated micro-batches]",
    f"test_deepseek.py::{PROVED}[a first stage without experts]",
    "test_deepseek.py::test_wrong_variant_is_refuted[gates without their factor]",
    "test_deepseek.py::test_wrong_variant_is_refuted[one expert a token]",
    "test_deepseek.py::test_wrong_variant_is_refuted[one group of experts]",
    f"test_deepseek.py::{PROVED}[experts over ranks]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[1]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[5]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[12]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[14]",
    "test_schema.py::test_certificates_of_the_corpus_agree_with_the_schema",
    "test_again.py::test_mutants_are_proved_again_only_where_they_are_proved[written out]",
    *(f"test_right.py::{RIGHT}[{name}-large]" for name in LARGE),
    "test_zigzag.py::test_attention_on_keys_of_all_ranks_in_a_zigzag[4]",
    "test_zigzag.py::test_keys_may_be_put_back_in_order[*parts[1::2][::-1]]",
    "test_zigzag.py::test_a_wrong_zigzag_is_refuted[gradients are not summed]",
    "test_zigzag.py::test_a_wrong_zigzag_is_refuted[positions in order]",
    "test_zigzag.py::test_ranks_may_hold_every_nth_row[zigzag(1)@cp]",
    "test_held_by_steps.py::test_a_step_may_train_two_models[another rate]",
    "test_held_by_steps.py::test_a_step_may_set_the_data_of_parameters[new values]",
    *(f"test_strategies.py::test_strategy_is_proved[{name}]" for name in STRATEGIES),
    "test_contrastive.py::test_wrong_labels_or_rows_are_refuted[labels of the other]",
    "test_ledger.py::test_nothing_is_much_slower_than_it_was[frontier]",
    "test_optimum.py::test_any_duals_give_a_bound_that_is_true[dp=2,tp=2]",
    "test_torch.py::test_the_same_to_the_bit[compile-float64]",
    "test_capture.py::test_library_models_agree_with_pytorch[Gemma2ForCausalLM]",
    "test_experts.py::test_the_router_is_trained_by_what_all_ranks_found[OwnListed-Listed]",
    "test_more.py::test_other_ways_of_PyTorch[memory written in pieces]",
    "test_more.py::test_other_ways_of_PyTorch[functional collectives]",
    "test_malformed.py::test_ten_megabytes_parse_in_seconds",
    "test_stand_ins.py::test_a_trace_says_what_a_run_does[fully_shard]",
    "test_stand_ins.py::test_a_trace_says_what_a_run_does[parallelize_module]",
    "test_run.py::test_a_module_that_reduces_where_it_is_traced_alone_is_not_proved[hooks that a "
    "trace registers]",
    "test_hostile_endpoint.py::test_budget_is_kept_within_a_tenth[calls-4-drops]",
    "test_hostile_endpoint.py::test_budget_is_kept_within_a_tenth[usd-0.012-drops]",
    "test_mutants.py::test_a_fault_is_refuted_as_gloo_says_and_repaired[wrong collective]",
    "test_lists.py::test_norms_after_sums_over_ranks_are_proved_in_rolled_layers",
    "test_reading.py::test_llama_with_vocabulary_parallel_loss_and_shared_heads_is_proved",
    "test_formats.py::test_the_examples_for_ci_fail_at_the_line[workflow.yml]",
    "test_walk.py::test_every_room_is_entered_once_or_twice",
    "test_pipelines.py::test_micro_batches_are_parts_of_the_batch",
    "test_pipelines.py::test_all_modes_are_judged",
    "test_experts.py::test_pieces_at_their_places_in_zeros_sum_to_the_whole",
    "test_experts.py::test_the_router_is_trained_by_what_all_ranks_found[SplitStacked-Stacked]",
    "test_modes.py::test_what_train_mode_alone_draws_is_told_with_the_mode",
    "test_modes.py::test_a_reduction_in_eval_mode_alone",
    "test_readers.py::test_check_proves_what_parallelize_proves[Recurrent]",
    "test_states.py::test_running_statistics_are_compared_in_each_mode",
    "test_steps.py::test_a_step_runs_on_processes[wrong]",
    "test_stepped.py::test_a_step_is_judged_however_it_is_written[hybrid-set_to_none=True-"
    "set_to_none=False-Proof]",
    "test_stepped.py::test_a_step_is_judged_however_it_is_written[hybrid-"
    "opt.zero_grad(set_to_none=True)-pass-Counterexample]",
    "test_stepped.py::test_a_step_is_judged_however_it_is_written[owned-self.clip(0.05)-"
    "self.clip(0.05); self.clip(0.05)-Proof]",
    "test_verdicts.py::test_attack_is_not_proved_with_a_wrong_patch[batch_mean]",
    "test_campaign.py::test_a_small_campaign_accepts_nothing_wrong_and_refutes_nothing_right[10]",
    "test_gpus.py::test_a_whole_step_is_chosen_for_and_proved_on_stages",
    "test_capture.py::test_alternating_layers_of_experts_are_captured_with_little_memory_and_few_"
    "layers",
    "test_library.py::test_a_plan_without_the_sum_of_a_gradient_is_refuted_at_that_parameter",
    "test_killed.py::test_killed_while_it_takes_back",
    "test_ray.py::test_a_killed_batch_goes_on_where_it_was",
    "test_ray.py::test_a_killed_worker_and_a_killed_node_cost_what_ran_on_them",
    "test_library.py::test_keys_that_are_written_in_pieces_are_related",
    "test_library.py::test_a_plan_is_repaired_in_its_file",
    "test_pipelines.py::test_replicas_of_a_pipeline",
    "test_dialects.py::test_the_dtypes_of_mixed_precision_are_told",
    "test_ray.py::test_a_cluster_that_is_lost_ends_the_batch_and_keeps_what_is_done",
    "test_readme.py::test_the_three_steps_of_the_tutorial",
    "test_hostile_endpoint.py::test_budget_is_kept_within_a_tenth[tokens-12000-drops]",
    *(f"test_campaign.py::{REWRITES}[{name}]" for name in REWRITTEN),
    "test_torch.py::test_the_same_to_the_bit[compile-bfloat16]",
    "test_capture.py::test_library_models_agree_with_pytorch[GPT2LMHeadModel]",
    "test_capture.py::test_user_files_agree_with_pytorch[minillama.py:Llama]",
    "test_loads.py::test_weights_from_other_ranks_are_refused",
    "test_repair.py::test_one_fault_is_mended[ulysses[tp=2] wrong dim of a collective]",
    f"test_deepseek.py::{PROVED}[experts over ranks, split too]",
    "test_planted.py::test_bug_in_one_step_and_one_rank_is_found_there[7]",
    *(f"test_custom_functions.py::{BACKWARD}[{n}]" for n in CUSTOM),
    "test_cells.py::test_a_cell_whose_units_are_split_is_proved[Lstm]",
    "test_cells.py::test_units_that_are_dealt_out_in_another_way_are_refuted[partly]",
    "test_custom_functions.py::test_a_rank_with_another_backward_is_refuted[cuda_bias_gelu]",
    "test_numbers_of_steps.py::test_a_count_that_a_step_tells_from_0_is_not_0[not of 0]",
    "test_numbers_of_steps.py::test_gradients_that_ranks_leave_as_zeros_are_none",
    "test_modes.py::test_a_branch_that_a_draw_decides[self.training and ]",
    "test_against_gloo.py::test_traced_as_it_runs[C]",
)
"""Ends of names of tests that take long, and of which others of the same kind are in every run."""
FROZEN_EVERY = 400
"""Tests, after which what is there is left out of later collections."""
_RAN = [0]
SLOW = frozenset(
    {
        *("attacks", "batch", "campaign", "chat", "check", "cli", "execute", "frontend", "guard"),
        *("laws", "patches", "patching", "pipeline", "repair", "report"),
        *("right", "scale_down", "training", "untraceable"),
    }
)
"""Folders that the fast tier does not even read."""
RECORDED = TESTS / "slow.txt"
"""Names of tests elsewhere that the fast tier leaves out, with every case or with one."""
LIMIT = 0.3
"""Seconds of the processor that a test of the fast tier may take; those of processes count."""
LEFT_OUT = {
    "fast": frozenset({"campaign", "slow", "torch", "gloo", "browser"}),
    "test": frozenset({"campaign"}),
    "all": frozenset[str](),
}
"""The markers that a tier leaves out."""
COLLECTED = (100_000, 20, 20)
"""When garbage is collected: programs are many objects that stay, in few circles."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=sorted(LEFT_OUT), default="all", help="which tests run")
    parser.addoption("--record", action="store_true", help=f"measure tests into {RECORDED.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record"):
        if config.getoption("numprocesses", None):
            raise pytest.UsageError("--record measures tests of one process: leave out -n")
        config.option.tier = "fast"
        config.pluginmanager.register(Recorder(), "recorder")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What the fast tier leaves out whole is not imported: PyTorch alone takes seconds."""
    if tier(config) != "fast":
        return None
    if collection_path.parent == TESTS and collection_path.name in SLOW:
        return True
    if collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.torch\n" in collection_path.read_text() or None


SAMPLED = {
    "test_strategies.py::test_strategy_is_proved": 10,
    "test_wrong_steps.py::test_wrong_variant_is_refuted": 6,
    "test_artifact_bugs.py::test_bug_is_found_and_shown": 5,
    "test_hostile_endpoint.py::test_fault_ends_the_question_in_one_line_that_names_it": 24,
    "test_placements.py::test_every_claim_of_the_op_holds": 30,
    "test_elementwise.py::test_every_output_and_gradient_has_the_forms_of_one_device": 6,
    "test_campaign.py::test_a_dropped_collective_is_seen_by_both_deciders": 6,
    "test_launcher.py::test_a_wrong_edit_is_refuted": 1,
    "test_random.py::test_what_is_accepted_is_right_and_what_is_right_is_accepted": 3,
    "test_replay.py::test_any_change_of_a_certificate_is_rejected": 3,
    "test_replay.py::test_certificate_of_another_program_is_rejected": 7,
    "test_staged.py::test_a_stage_that_errs_is_refuted": 2,
    "test_replay.py::test_proof_of_a_rewritten_program_replays": 4,
    "test_faults.py::test_a_law_finds_a_fault_of_what_no_step_shows": 15,
    "test_second.py::test_edited_certificate_is_rejected_or_true": 10,
}
"""Of as many cases of a test, spread over all, `test` takes some: `test-all` runs every one."""
PROCESSES = (
    *("attacks", "batch", "check", "cli", "execute", "frontend", "guard", "patches", "targets"),
    "untraceable",
)
"""Rooms whose tests each start processes that import PyTorch. Of a file with n of them that are not
in `SAMPLED`, `test` takes sqrt(n) - 1, two at least, spread over all."""


def _sampled(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Those of the tests in `SAMPLED` and `PROCESSES` that are left to `test-all`."""
    for name, count in SAMPLED.items():
        yield from _spread([i for i in items if every_case(i.nodeid).endswith(name)], count)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        chosen = every_case(item.nodeid).endswith(tuple(SAMPLED))
        if not chosen and item.path.relative_to(TESTS).parts[0] in PROCESSES:
            files.setdefault(item.path, []).append(item)
    for cases in files.values():
        yield from _spread(cases, max(2, isqrt(len(cases)) - 1))


def _spread(cases: list[pytest.Item], count: int) -> Iterator[pytest.Item]:
    """All but as many, which are spread over all."""
    kept = {len(cases) * k // count for k in range(count)}
    yield from (item for number, item in enumerate(cases) if number not in kept)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    recorded = frozenset[str]() if config.getoption("record") else names_recorded()
    for item in items:
        if item.nodeid.endswith(CAMPAIGNS):
            item.add_marker(pytest.mark.campaign)
        in_slow_folder = item.path.relative_to(TESTS).parts[0] in SLOW
        if in_slow_folder or item.nodeid in recorded or every_case(item.nodeid) in recorded:
            item.add_marker(pytest.mark.slow)
    for item in _sampled([i for i in items if i.get_closest_marker("campaign") is None]):
        item.add_marker(pytest.mark.campaign)
    left_out = LEFT_OUT[tier(config)]
    out = {item for item in items if any(m.name in left_out for m in item.iter_markers())}
    config.hook.pytest_deselected(items=list(out))
    items[:] = [item for item in items if item not in out]


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()  # thousands of tests and what they import, which stay
    gc.set_threshold(*COLLECTED)
    if tier(session.config) == "fast" and "torch" in sys.modules:
        raise pytest.UsageError("a file of the fast tier imports torch: mark it, or import later")


def pytest_runtest_logfinish(nodeid: str, location: object) -> None:
    """What tests leave behind stays: it is not gone through again and again."""
    del nodeid, location
    _RAN[0] += 1
    if _RAN[0] % FROZEN_EVERY == 0:
        gc.collect()
        gc.freeze()


def tier(config: pytest.Config) -> str:
    return str(config.getoption("tier"))


def names_recorded() -> frozenset[str]:
    return frozenset(RECORDED.read_text().splitlines())


def every_case(name: str) -> str:
    return name.partition("[")[0]


class Recorder:
    """Measures every test of one process."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.quick: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        before = processor_seconds()
        result = yield
        names = self.slow if processor_seconds() - before > LIMIT else self.quick
        names.add(item.nodeid)
        return result

    def pytest_sessionfinish(self) -> None:
        """Names of tests that did not run stay."""
        mixed = {every_case(name) for name in self.quick}
        slow = {name if every_case(name) in mixed else every_case(name) for name in self.slow}
        measured = mixed | {every_case(name) for name in self.slow}
        kept = {name for name in names_recorded() if every_case(name) not in measured}
        RECORDED.write_text("".join(f"{name}\n" for name in sorted(slow | kept)))


def processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
