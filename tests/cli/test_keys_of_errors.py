"""Errors of the Python API name the argument that was wrong, and no option."""

import pytest
from torch import nn

import dpdemo as package
from dpdemo import UsageError


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda: package.predict_memory(gpus=2, reserve="zz"), "reserve"),
        (lambda: package.predict_memory(gpus=2, gpu="zz"), "gpu"),
        (lambda: package.predict_memory(gpus=2, gpu_memory="zz"), "gpu_memory"),
        (lambda: package.predict_memory(gpus=2, inputs=["zz"]), "input"),
        (lambda: package.predict_memory(gpus=2, inputs=["99999999999999999999x5"]), "input"),
        (lambda: package.simulate(gpus="all"), "gpus"),
        (lambda: package.simulate(gpus=2).save("report.pdf"), "path"),
        (lambda: package.check(nn.Linear(5, 2), batch_size=10**25), "batch_size"),
    ],
)
def test_errors_of_the_python_api_name_no_options(call, key):
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.key == key
    assert "--" not in str(caught.value)
    argument = "inputs" if key == "input" else key
    assert str(caught.value).endswith(f" - at argument `{argument}`")
