"""The next step for errors that end a program or a rank."""

import types

import pytest
import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from dpdemo.models.advice import advice


class FSDPModule:
    """Stands for torch's class, which a module under fully_shard derives from."""


class Sharded(FSDPModule):
    def generate(self):
        raise RuntimeError("aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all")

    def forward(self):
        return self.generate()


def caught(call):
    with pytest.raises((AttributeError, RuntimeError, OSError)) as found:
        call()
    return found.value


@pytest.mark.parametrize("wrapper", ["DataParallel", "DistributedDataParallel"])
def test_an_attribute_of_the_model_is_written_with_the_programs_own_name(wrapper):
    policy = types.SimpleNamespace(net=type(wrapper, (torch.nn.Module,), {})())
    (line,) = advice(caught(lambda: policy.net.config.cap))
    assert line.endswith("write `policy.net.module.config`")


def test_a_process_that_failed_in_mp_spawn_is_a_mistake_of_ranks_alone():
    error = ProcessRaisedException("-- Process 0 terminated: EADDRINUSE: address already in use", 0, 1)
    assert "--gpus 2" in advice(error, is_of_rank=True)[0]
    assert "another port" in advice(error)[0]


def test_a_method_past_the_hooks_of_fsdp_is_named():
    (line,) = advice(caught(Sharded().generate))
    assert 'register_fsdp_forward_method(model, "generate")' in line


def test_a_forward_of_fsdp_is_not_blamed():
    assert not any("register_fsdp" in line for line in advice(caught(Sharded().forward)))


def test_a_missing_file_is_a_ranks_question_alone():
    error = caught(lambda: open("/nowhere/model.pt"))  # noqa: PTH123, SIM115 - it raises
    assert advice(error) == []
    assert "dist.barrier()" in advice(error, is_of_rank=True)[0]


def test_an_unknown_error_has_no_advice():
    assert advice(ValueError("no such thing")) == []
