"""Each kind of bytes comes to light: what a storage is for, as the program goes on."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import gather, replicate, scatter
from torch.utils.checkpoint import checkpoint

from dpdemo.virtual import virtual_gpus

LAYER = 128 * 128 * 4 + 512  # Linear(128, 128)
MANY = 1000  # rows, so that a batch takes more room than a layer
WIDE = MANY * 128 * 4


@pytest.fixture(params=["cpu", "meta"])
def gpus(request):
    """Four virtual GPUs of each storage."""
    with virtual_gpus(4, storage=request.param) as opened:
        opened.live_by_kind(0)  # followed from now on
        yield opened


def layer():
    return nn.Linear(128, 128)


def rows(number=4):
    return torch.ones(number, 128)


def held(gpus, index=0):
    """What a GPU holds, less the kinds of which it holds nothing."""
    return {kind: size for kind, size in gpus.live_by_kind(index).items() if size}


def test_parameters_and_buffers_of_a_module_that_moves(gpus):
    model = nn.Sequential(layer(), nn.BatchNorm1d(128)).cuda()
    assert held(gpus) == {"parameters": LAYER + 2 * 512, "buffers": 3 * 512}
    model.to("cuda:2")
    assert held(gpus) == {}
    assert held(gpus, 2) == {"parameters": LAYER + 2 * 512, "buffers": 3 * 512}


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(128, 128, device="cuda"), nn.BatchNorm1d(128, device="cuda")),
        lambda: nn.Sequential(
            nn.Linear(128, 128, device="meta"), nn.BatchNorm1d(128, device="meta")
        ).to_empty(device="cuda"),
    ],
    ids=["device=", "to_empty"],
)
def test_parameters_and_buffers_of_a_module_made_there(gpus, make):
    model = make()
    assert held(gpus) == {"parameters": LAYER + 2 * 512, "buffers": 3 * 512}
    del model


def test_tied_weights_count_once_and_stay_tied(gpus):
    model = nn.Sequential(layer(), layer())
    model[1].weight = model[0].weight
    model.cuda()
    assert model[1].weight is model[0].weight
    assert held(gpus) == {"parameters": LAYER + 512}


def test_gradients_after_backward(gpus):
    model = layer().cuda()
    batch = rows().cuda()
    model(batch).sum().backward()
    assert held(gpus) == {"parameters": LAYER, "gradients": LAYER, "inputs": 2048}
    model(batch).sum().backward()  # added up in place
    assert held(gpus) == {"parameters": LAYER, "gradients": LAYER, "inputs": 2048}
    model.zero_grad()
    assert held(gpus) == {"parameters": LAYER, "inputs": 2048}


@pytest.mark.parametrize(
    ("make", "copies"),
    [
        (lambda parameters: torch.optim.SGD(parameters, 0.1), 0),
        (lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9), 1),
        (torch.optim.Adam, 2),
        (lambda parameters: torch.optim.AdamW(parameters, amsgrad=True), 3),
        (lambda parameters: torch.optim.Adam(parameters, foreach=False), 2),
    ],
)
def test_optimizer_state_after_a_step(gpus, make, copies):
    model = layer().cuda()
    optimizer = make(model.parameters())
    for _ in range(2):
        model(rows().cuda()).sum().backward()
        optimizer.step()
    expected = {"parameters": LAYER, "gradients": LAYER}
    assert held(gpus) == expected | ({"optimizer state": copies * LAYER} if copies else {})
    optimizer.zero_grad()
    del optimizer


def test_inputs_from_the_host(gpus):
    inputs = [
        rows().cuda(),
        rows().to("cuda:1"),
        torch.tensor([1.0], device="cuda:2"),
        rows().pin_memory().cuda(),
    ]
    assert held(gpus) == {"inputs": 2 * 2048}
    assert held(gpus, 1) == {"inputs": 2048}
    assert held(gpus, 2) == {"inputs": 512}
    del inputs


def test_inputs_that_scatter_cuts(gpus):
    batch = torch.empty(8, 128, device="cuda")
    chunks = scatter((batch,), [0, 1, 2, 3])
    assert held(gpus) == {"temporaries": 4096}  # of its own chunk it is a view
    assert [held(gpus, index) for index in (1, 2, 3)] == [{"inputs": 1024}] * 3
    del chunks


def test_replica_copies_are_one_buffer(gpus):
    model = nn.Sequential(layer(), nn.BatchNorm1d(128)).cuda()
    replicas = replicate(model, [0, 2])
    weights = (128 * 128 + 3 * 128) * 4
    assert held(gpus, 2) == {"replica copies": weights + 2 * 512 + 512}
    assert held(gpus) == {"parameters": LAYER + 2 * 512, "buffers": 3 * 512}
    assert gpus.peak_bytes(0) == gpus.live_bytes(0) + weights  # the buffer whose copies were sent
    del replicas


def test_gathered_outputs(gpus):
    parts = [torch.empty(2, 128, device=f"cuda:{index}") for index in range(3)]
    whole = gather(parts, 3)
    assert held(gpus, 3) == {"gathered outputs": 6 * 128 * 4}
    assert held(gpus) == {"temporaries": 1024}
    del whole


def test_activations_are_what_is_there_when_backward_begins(gpus):
    model = nn.Sequential(layer(), nn.ReLU(), layer()).cuda()
    batch = rows(MANY).cuda()
    loss = model(batch).sum()
    assert held(gpus) == {"parameters": 2 * LAYER, "inputs": WIDE, "temporaries": WIDE + 512}
    gpus.reset_peaks()
    loss.backward()
    assert held(gpus) == {"parameters": 2 * LAYER, "gradients": 2 * LAYER, "inputs": WIDE, "activations": 512}
    peak = gpus.peak_by_kind(0)
    assert peak["activations"] == WIDE + 2 * 512  # the ReLU's result, the loss, and its gradient
    assert peak["gradients"] == LAYER  # of the second layer
    assert peak["temporaries"] == 2 * WIDE  # two gradients on their way


def test_what_a_checkpoint_makes_again_is_no_activation_of_the_first_pass(gpus):
    inner = nn.Sequential(layer(), nn.ReLU(), layer()).cuda()
    first = layer().cuda()
    batch = rows(MANY).cuda()
    gpus.reset_peaks()
    checkpoint(inner, first(batch), use_reentrant=True).sum().backward()
    peak = gpus.peak_by_kind(0)
    assert peak["activations"] == WIDE + 2 * 512  # the first layer's result, the loss, and its gradient
    assert peak["temporaries"] >= 2 * WIDE  # among them the ReLU's result


def test_a_gradient_on_its_way_is_neither_input_nor_gathered(gpus):
    model = nn.DataParallel(nn.Sequential(layer(), layer()).cuda())
    output = model(torch.ones(4 * MANY, 128, device="cuda"))
    gpus.reset_peaks()
    output.backward(torch.empty_like(output))
    assert gpus.peak_by_kind(1)["inputs"] == WIDE
    assert gpus.peak_by_kind(0)["gathered outputs"] == 4 * WIDE
    assert gpus.peak_by_kind(0)["inputs"] == 0  # the batch was never on the host


def test_all_kinds_of_a_whole_step_under_data_parallel(gpus):
    model = nn.DataParallel(nn.Sequential(layer(), nn.BatchNorm1d(128), nn.ReLU(), layer()).cuda())
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        gpus.reset_peaks()
        output = model(rows(4 * MANY))
        output.sum().backward()
        optimizer.step()
    parts = gpus.peak_by_kind(0)
    assert sum(parts.values()) == gpus.peak_bytes(0)
    assert {kind for kind, size in parts.items() if size} >= {
        "parameters", "optimizer state", "buffers", "gathered outputs",
    }  # fmt: skip
    assert parts["replica copies"] == 0
    others = gpus.peak_by_kind(1)
    assert sum(others.values()) == gpus.peak_bytes(1)
    assert {kind for kind, size in others.items() if size} >= {"inputs", "replica copies"}
    assert others["parameters"] == others["optimizer state"] == 0
