"""Checking the calls that a script makes: what can be seen of them without a run on one device."""

import contextlib

import torch
from cases import TRIGGERS, Linear, x
from torch import nn

from dpdemo.preflight.watching import CallCheck
from dpdemo.virtual import virtual_gpus

BY_NAME = {case.factory.__name__: case.factory for case in TRIGGERS}


def codes_of(name, *, calls=1):
    with virtual_gpus(4):
        model, inputs = BY_NAME[name]()
        wrapper = nn.DataParallel(model.to("cuda:0"))
        watch = CallCheck()
        with watch.watching():
            for _ in range(calls):
                with contextlib.suppress(Exception):  # most of them do fail
                    wrapper(*inputs) if isinstance(inputs, tuple) else wrapper(inputs)
        return set(watch.report().codes)


def test_calls_of_a_script_are_checked_as_they_happen():
    assert codes_of("a_lone_weight_cuts_the_batch", calls=3) == {"DP201"}
    assert codes_of("a_count_is_a_tensor_without_dimensions") == {"DP206"}
    assert codes_of("a_plain_tensor_stays_on_gpu_0") == {"DP302"}
    assert codes_of("names_come_back_garbled") == {"DP403"}
    assert codes_of("a_number_is_returned") == {"DP402"}
    assert codes_of("boxes_of_images_are_merged") == set()  # this takes a run on one device to see


def test_a_clean_call_has_no_finding():
    with virtual_gpus(4):
        wrapper = nn.DataParallel(Linear().to("cuda:0"))
        watch = CallCheck()
        with watch.watching():
            for _ in range(3):
                wrapper(x(16)).sum().backward()
    report = watch.report()
    assert (report.findings, report.batch_sizes, report.num_gpus) == ((), (16,), 4)


def test_calls_of_one_kind_are_kept_once_and_hold_no_tensors():
    with virtual_gpus(4):
        wrapper = nn.DataParallel(Linear().to("cuda:0"))
        watch = CallCheck()
        with watch.watching(), torch.no_grad():
            for rows in (16, 16, 8, 16):
                wrapper(x(rows))
    assert watch.report().batch_sizes == (16, 8)
    assert len(watch._probes) == 2
