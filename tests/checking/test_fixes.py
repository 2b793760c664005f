"""A printed repair, put in the place of what it repairs, makes the check silent."""

import ast
import inspect
import re
import textwrap
from functools import partial

import pytest
import torch
from cases import ALL_CASES, TRIGGERS
from repairing import differences, is_of_result, program_of, repaired_factory
from test_rules import report_on
from torch import nn

from dpdemo.checking import check
from dpdemo.checking.batches import on_device
from dpdemo.models.inputs import as_arguments
from dpdemo.observation.tree import tensors_in
from dpdemo.virtual import virtual_gpus

BY_HAND = {
    "DP309-a_default_of_a_function_is_a_list",
    "DP309-a_function_counts_in_a_name_around_it",
    "DP309-a_function_counts_its_calls",
    "DP309-forward_takes_the_next_number_of_a_counter",
    "DP401-a_mean_comes_back_as_a_vector",
    "DP401-a_mean_of_shape_1_comes_back_as_a_vector",
    "DP401-beside_a_loss_an_accuracy_comes_back_as_a_vector",
    "DP401-a_mean_is_gathered_along_columns",
    "DP402-a_number_is_returned",
    "DP402-a_size_is_returned",
    "DP402-a_dataclass_is_returned",
    "DP403-names_come_back_garbled",
    "DP403-names_of_images_come_back_garbled",
    "DP404-an_auxiliary_result_is_dropped",
    "DP404-an_auxiliary_result_is_missing",
    "DP405-a_key_is_there_in_some_replicas",
    "DP405-a_dimension_is_there_in_some_replicas",
    "DP407-a_result_is_moved_to_the_cpu",
    "DP408-boxes_of_images_are_merged",
    "DP408-boxes_of_images_cannot_be_joined",
    "DP490-sparse_results_cannot_be_joined",
    "DP402-an_object_that_cannot_be_made_anew",
    "DP408-boxes_scores_and_labels_of_images",
    "DP401-right_answers_are_counted",
    "DP408-boxes_of_images_are_of_unequal_number",
    "DP309-processors_append_to_the_list_of_a_store",
    "DP390-forward_insists_on_a_whole_batch",
    "DP304-a_layer_has_a_weak_reference_to_the_model",
    "DP410-a_mean_over_the_batch_is_one_for_each_gpu",
    "DP410-a_sum_over_the_batch_behind_batchnorm_is_one_for_each_gpu",
    "DP590-the_number_of_the_gpu_scales_the_result",
    "DP590-a_result_is_split_into_parts_of_two_rows",
    "DP501-a_loss_is_summed_in_each_replica",
    "DP304-a_partial_of_a_function_is_a_layers_forward",
    "DP103-two_halves_are_on_two_gpus",
    "DP305-a_table_is_written_in_backward",
    "DP502-rows_are_mixed_in_a_layers_argument",
    "DP501-words_that_count_are_averaged_in_a_method_of_a_part",
    "DP207-forward_makes_its_own_batch",
    "DP201-edges_of_a_graph_cut_the_batch",
    "DP205-the_nodes_of_one_graph_are_the_batch",
    "DP205-an_argument_numbers_rows_of_the_batch",
    "DP603-noise_is_drawn_by_a_seed_of_its_own",
    "DP301-a_counter_never_counts",
    "DP301-remembered_features_are_lost",
    "DP307-sync_batchnorm_does_not_synchronise",
    "DP311-backward_in_forward",
    "DP311-forward_reads_a_gradient",
    "DP315-an_rnn_is_called_as_it_is",
    "DP301-a_counter_counts_behind_dropout",
    "DP311-a_model_trains_itself",
    "DP302-a_partial_function_has_a_tensor",
    "DP601-bfloat16_around_the_call_is_float16_inside",
    "DP601-bfloat16_around_a_model_is_float16_inside",
    "DP601-autocast_of_the_cpu_is_dropped",
    "DP602-inference_mode_ends_at_the_replicas",
    "DP603-dropout_draws_on_each_gpu",
    "DP701-wide_results_are_gathered_on_gpu_0",
    "DP107-a_scripted_layer",
}
"""Cases whose repair no program can put in as it is printed: it is told in words, or stands at the call."""
LEADS_ON = {
    "DP207-a_list_of_images_is_cut_by_channels": {"DP408"},  # now the images are cut, and the results joined
    "DP317-hooks_are_put_in_at_the_first_call": {"DP310"},  # now they are there before
    "DP202-a_starved_replica_runs_without_a_mask": {"DP201"},  # the mask has fewer rows than the batch
    "DP402-a_field_of_a_result_is_a_number": {"DP502"},  # it counts the samples of a chunk
    "DP402-numbers_are_taken_out_for_a_log": {"DP501", "DP401"},  # now it is a loss
    "DP305-a_mean_of_the_batch_is_followed_in_a_branch": {"DP502"},  # its own samples are scaled by it, too
    "DP308-a_penalty_is_a_part_of_the_loss": {"DP501"},  # now the losses can be compared
    "DP308-a_penalty_that_is_returned_is_a_number_in_replicas": {"DP501", "DP401"},  # now it is a tensor
}
"""What a repair brings to light, which was there before."""
SOME = TRIGGERS[:: 1 if ALL_CASES else 8]
"""The cases that are repaired: `make test-cases` takes all of them."""
LEAST_OUTSIDE = 0.1
"""The least share of them whose repair has lines around the call."""


def repaired_statement(case, finding):
    """Put a repaired statement, of one line or more, in its place; None where the case has none."""
    texts = [finding.own_after, *(one.after for one in finding.also if one.place is not None)]
    if finding.place is None or finding.own_before.startswith("model(") or not all(map(_is_literal, texts)):
        return None
    factory = repaired_factory(case.factory, finding)
    return check(factory, **case.options) if factory is not None else None


def _is_literal(code):
    """Whether it can be put in as it stands: written out, without a part elsewhere that is told in words."""
    if re.search(r"\.\.\.(?!,)", code) or ELSEWHERE.search(code):
        return False
    margin = code.rstrip().endswith(":") * "\n    pass"  # the first line of a block
    try:
        ast.parse(textwrap.dedent(code) + margin)
    except SyntaxError:
        return False
    return True


ELSEWHERE = re.compile("#.*(in forward|forward reads|in __init__|where forward|looked up|by hand)")
"""Words that tell of another place."""


def repaired_call(case, finding):
    """Make the call as it is repaired: with other arguments, or after a line that changes one of them."""
    code = finding.own_after.partition("   #")[0]
    is_of_arguments = finding.own_before.startswith("model(") and not is_of_result(finding)
    if not is_of_arguments or "..." in code or ELSEWHERE.search(finding.own_after):
        return None
    if not re.match(r"model\(|\w+\[.*\] = ", code):
        return None

    factory = repaired_factory(case.factory, finding)
    return check(factory, **case.options) if factory is not None else None


def repaired_wrapper(case, finding):
    """Make the wrapper, or the model in it, as it is repaired; or cut along the dimension that it names."""
    found = re.fullmatch(r"nn\.DataParallel\(model, dim=(\d)\)", finding.own_after)
    if found:
        return check(case.factory, **case.options | {"dim": int(found[1])})
    is_built = re.match(r"nn\.DataParallel\(|model[\w.\[\]]* = ", finding.own_after.rpartition("\n")[2])
    is_in_a_file = finding.place is not None and not re.match(
        r"(model = )?nn\.DataParallel\(model", finding.own_before
    )
    is_of_call = finding.own_before.startswith("model(")
    if is_of_call or is_in_a_file or not is_built or "..." in finding.own_after:
        return None
    return check(partial(_built_as_repaired, case.factory, finding.own_after), **case.options)


def _built_as_repaired(factory, code):
    """Build a model, and go on as a repaired program does."""
    model, inputs = factory()
    wraps = "DataParallel(" in code
    model = model.module if wraps and isinstance(model, nn.DataParallel) else model
    args, kwargs = as_arguments(inputs(8) if callable(inputs) else inputs)
    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    names = {**given, "nn": nn, "model": model}
    exec(code if not code.startswith("nn.") else f"model = {code}", names)  # noqa: S102 - our own tests
    return names["model"], inputs


def repaired_loader(case, finding):
    """Load batches of the size that the repaired loader names, the last one left out."""
    found = re.fullmatch(r"DataLoader\(data, batch_size=(\d+)(, drop_last=True)?\)", finding.own_after)
    return (
        check(case.factory, **case.options | {"batch_size": int(found[1]), "drop_last": True})
        if found
        else None
    )


KINDS = (repaired_statement, repaired_call, repaired_wrapper, repaired_loader)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", SOME, ids=str)
def test_what_is_repaired_as_printed_is_found_no_more(case):
    known = {one.code for one in report_on(case).findings}
    own = [one for one in report_on(case).findings if one.code == case.code and not one.is_example][:1]
    reports = [found for one in own for kind in KINDS if (found := kind(case, one)) is not None]
    assert bool(reports) is (str(case) not in BY_HAND)
    left = [
        (own[0].own_after, one.message)
        for report in reports
        for one in report.findings
        if one.severity in ("error", "warning", own[0].severity)
        and (one.code == case.code or one.code not in known | LEADS_ON.get(str(case), set()))
    ]
    assert left == []


AS_BEFORE = (
    *("DP101", "DP105", "DP106", "DP109", "DP20", "DP212", "DP214", "DP215"),
    *("DP302", "DP303", "DP304", "DP308", "DP314", "DP39"),
)
"""Rules whose repairs change where things are, and nothing that is computed on one GPU."""
LEAST_AS_BEFORE = 0.1


@pytest.mark.filterwarnings("ignore")
def test_what_is_repaired_as_printed_computes_the_same_on_one_gpu():
    wrong, compared = [], []
    for case in SOME:
        own = [one for one in report_on(case).findings if one.code == case.code and not one.is_example]
        for finding in own[:1] if case.code.startswith(AS_BEFORE) else ():
            texts = [finding.own_after, *(one.after for one in finding.also)]
            is_elsewhere = finding.place is None or "# outside" in finding.own_after
            is_elsewhere |= program_of(finding) is not None  # the lines behind the call belong to it
            if case.options or is_elsewhere or not all(map(_is_literal, texts)):
                continue
            repaired = repaired_factory(case.factory, finding)
            if repaired is not None and (results := _results_of(case.factory, repaired)) is not None:
                compared.append(str(case))
                pairs = list(zip(*results, strict=True))
                is_same = pairs and all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
                wrong += [] if is_same else [str(case)]
    assert wrong == []
    assert len(compared) >= LEAST_AS_BEFORE * len(SOME), compared


def _results_of(*factories):
    """Run each on one GPU; None where the first, which is not repaired, cannot."""
    found = []
    with virtual_gpus(4):
        for factory in factories:
            try:
                model, args, kwargs = _built(factory)
                model = model.module if isinstance(model, nn.DataParallel) else model
                found.append(list(tensors_in(model(*args, **kwargs))))
            except (RuntimeError, AttributeError, LookupError, AssertionError, TypeError, ValueError):
                if found:
                    raise
                return None
    return found


def _built(factory):
    torch.manual_seed(0)
    model, inputs = factory()
    args, kwargs = on_device(as_arguments(inputs(8) if callable(inputs) else inputs), torch.device("cuda", 0))
    return model.cuda().eval(), args, kwargs


@pytest.mark.filterwarnings("ignore")
def test_what_is_written_around_the_call_gives_the_result_and_the_state_of_one_gpu():
    """The lines are run as printed, with genuine DataParallel around a model repaired as printed."""
    wrong, compared = [], []
    for case in SOME:
        for finding in report_on(case).findings:
            program = program_of(finding)
            if finding.code != case.code or program is None or case.options:
                continue
            factory = repaired_factory(case.factory, finding)
            if factory is not None:
                compared.append(str(case))
                found = differences(case.factory, factory, program, finding.subject.split(","))
                wrong += [(str(case), found)] if found else []
    assert wrong == []
    assert len(compared) >= LEAST_OUTSIDE * len(SOME), compared


def test_a_repair_is_in_the_users_own_names_or_is_called_an_example():
    """Nobody is shown a mask that is not theirs."""
    shown = {}
    for case in SOME:
        for finding in report_on(case).findings:
            if finding.code == case.code and finding.severity != "info":
                shown[str(case)] = finding.is_example
    own = [name for name, is_example in shown.items() if not is_example]
    assert len(own) >= 0.8 * len(shown), sorted(name for name in shown if shown[name])
