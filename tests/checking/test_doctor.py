"""An error of a DataParallel run is explained from its text, for whatever the rules' own triggers raise."""

import contextlib
import traceback

import pytest
import torch
from cases import TRIGGERS
from torch import nn

from dpdemo.checking.doctor import diagnose
from dpdemo.checking.errors import PATTERNS
from dpdemo.checking.registry import rule_of
from dpdemo.checking.running.batches import on_device
from dpdemo.errors import UsageError
from dpdemo.models.inputs import Batches
from dpdemo.virtual import virtual_gpus

RAISING = (
    "a_number_is_returned",
    "a_size_is_returned",
    "a_dataclass_is_returned",
    "an_auxiliary_result_is_missing",
    "results_are_padded_to_the_longest_of_a_chunk",
    "a_result_is_moved_to_the_cpu",
    "boxes_of_images_are_merged",
    "boxes_of_images_cannot_be_joined",
    "columns_are_summed_to_one_dimension",
    "sparse_results_cannot_be_joined",
    "an_object_that_cannot_be_made_anew",
    "classes_are_brought_to_the_cpu",
    "words_are_cut_off_behind_the_longest",
    "tensors_are_held_in_lists_of_objects",
    "a_distribution_is_taken_to_the_gpu_by_hand",
    "a_distribution_is_made_on_the_gpu_in_a_method",
    "a_dict_that_is_a_dataclass_is_returned",
    "a_method_of_a_part_normalises_weights",
    "a_helper_trims_the_padding",
    "a_plain_tensor_stays_on_gpu_0",
    "a_tensor_is_made_on_a_fixed_gpu",
    "an_input_is_moved_to_the_device_of_self",
    "the_first_parameter_is_asked_for_its_device",
    "a_replica_without_parameters_is_not_the_fault_of_a_square_argument",
    "a_layer_is_copied_in_forward",
    "a_parameter_has_an_attribute",
    "forward_insists_on_a_whole_batch",
    "fast_weights_are_read_from_gradients",
    "a_weight_is_copied_in_forward",
    "a_method_makes_the_state",
    "a_state_of_two_layers_is_given",
    "two_states_outnumber_the_batch",
    "tensors_in_a_dict_stay_on_gpu_0",
    "heads_have_numbers_in_a_dict",
    "a_copy_of_the_head_is_adapted_by_hand",
    "each_domain_that_is_there_has_a_key",
    "a_method_of_what_is_wrapped_is_called_twice",
    "a_setting_is_kept_for_each_thread",
    "two_parameters_have_an_attribute",
    "a_flag_by_keyword_outnumbers_the_chunks",
    "a_count_is_a_tensor_without_dimensions",
    "lengths_are_moved_to_the_gpus",
    "a_number_without_dimensions_lies_in_a_dict",
    "a_step_without_dimensions_is_needed_as_a_tensor",
    "a_part_returns_a_dict_for_each_image",
    "the_last_batch_ends_in_a_lone_sample",
    "a_groupnorm_of_lone_numbers_meets_a_lone_sample",
    "an_attribute_is_read_from_the_wrapper",
    "forward_reads_an_attribute_from_a_wrapper",
    "a_wrappers_state_is_loaded",
    "a_model_is_on_the_second_gpu",
    "a_parameter_is_added_after_the_move",
    "a_gpu_is_named_that_is_not_there",
    "no_gpu_is_named",
    "a_wrapper_in_a_wrapper",
    "a_model_is_wrapped_twice",
    "a_lazy_layer",
    "an_attribute_is_wrapped_within",
)
"""Triggers that raise, and whose message and line tell which rule it is."""


def raised_by(case):
    """Give the traceback of what a training step of a trigger raises, as Python prints it."""
    try:
        model, inputs = case.factory()
        dim = case.options.get("dim", 0)
        batches = Batches.of(inputs, None, 8, dim)
        if not any(isinstance(module, nn.DataParallel) for module in model.modules()):
            model = nn.DataParallel(model.to("cuda:0"), dim=dim)
        model = model.to("cuda:0") if case.code in ("DP401", "DP409", "DP501") else model
        for size in (batches.size, 5):
            args, kwargs = on_device(batches.arguments(size), torch.device("cuda:0"))
            result = model.train()(*args, **kwargs)
            if isinstance(result, torch.Tensor) and case.code == "DP501":
                result.backward()
    except Exception:
        return traceback.format_exc()
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RAISING)
def test_an_error_of_a_trigger_is_explained_by_its_rule(name):
    case = next(one for one in TRIGGERS if one.factory.__name__ == name)
    with virtual_gpus(case.options.get("gpus", 4)):
        text = raised_by(case)
    assert text is not None
    (finding,) = diagnose(text).findings
    assert finding.code == case.code, text


@pytest.mark.parametrize(
    "message",
    [
        "TypeError: object of type 'DataParallel' has no len()",
        "AttributeError: 'DataParallel' object has no attribute 'predict'",
        "TypeError: 'DataParallel' object is not subscriptable",
        "TypeError: 'DataParallel' object is not iterable",
        "AttributeError: 'BalancedDataParallel' object has no attribute 'fc'",
        "TypeError: expected a Sequential, got DataParallel",
    ],
)
def test_every_error_that_names_the_wrapper_is_told(message):
    text = f'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f(dp)\n{message}\n'
    (finding,) = diagnose(text).findings
    assert (finding.code, str(finding.place)) == ("DP101", "a.py:3")


def test_every_pattern_is_of_a_rule():
    assert all(rule_of(pattern.code) for pattern in PATTERNS)


def test_the_users_own_line_is_named():
    text = """Traceback (most recent call last):
  File "/home/me/train.py", line 7, in <module>
    loss = model(x)
  File "/usr/lib/python3.11/site-packages/torch/nn/parallel/data_parallel.py", line 193, in forward
    outputs = self.parallel_apply(replicas, inputs, module_kwargs)
StopIteration: Caught StopIteration in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/nn/parallel/parallel_apply.py", line 97, in _worker
    output = module(*input, **kwargs)
  File "/home/me/net.py", line 31, in forward
    device = next(self.parameters()).device
StopIteration
"""
    (finding,) = diagnose(text).findings
    assert (finding.code, str(finding.place)) == ("DP308", "/home/me/net.py:31")
    assert "replica 0" in finding.message


def test_an_error_that_is_not_dataparallels_is_said_to_be_that():
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no such colour\n'
    )
    report = diagnose(text)
    assert report.findings == ()
    assert "no rule knows this message" in report.notes[0]


def test_a_text_without_an_exception_is_refused():
    with pytest.raises(UsageError, match="got a text without one"), contextlib.nullcontext():
        diagnose("all is well\n")
