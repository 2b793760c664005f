"""Recurrent networks on a virtual GPU: the CPU's numbers and gradients, and the bytes of one kernel."""

import pytest
import torch
from stacks import block
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

pytestmark = [
    pytest.mark.usefixtures("without_collector"),
    pytest.mark.usefixtures("gpus"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]
ROWS, STEPS, WIDTH, HIDDEN = 4, 6, 5, 8
NETWORKS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


@pytest.fixture(params=NETWORKS.values(), ids=list(NETWORKS))
def network(request):
    return request.param


def flat(value):
    if isinstance(value, PackedSequence):
        return [value.data]
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for part in value for leaf in flat(part)]


def run(model, device, *given):
    """Run on a device; return outputs and gradients of inputs and weights, on the CPU."""
    model.to(device).zero_grad()
    leaves = [tensor.detach().to(device).requires_grad_() for tensor in given]
    outputs = flat(model(*leaves))
    assert {output.device for output in outputs} == {torch.device(device)}
    torch.manual_seed(2)
    total = sum((output * torch.randn(output.shape).to(device)).sum() for output in outputs)
    total.backward()
    gradients = [leaf.grad for leaf in (*leaves, *model.parameters())]
    return [tensor.detach().cpu() for tensor in (*outputs, *gradients) if tensor is not None]


def agree(model, *given):
    theirs, ours = run(model, "cpu", *given), run(model, "cuda:1", *given)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"num_layers": 3}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True}),
        *({"batch_first": True}, {"bias": False}, {"dropout": 0.0, "num_layers": 2}),
    ],
)
def test_numbers_and_gradients_are_the_cpus(network, options):
    agree(network(WIDTH, HIDDEN, **options), torch.randn(ROWS, STEPS, WIDTH))


def test_other_networks_and_one_sequence_without_a_batch():
    agree(nn.LSTM(WIDTH, HIDDEN, 2, proj_size=3, bidirectional=True), torch.randn(STEPS, ROWS, WIDTH))
    agree(nn.RNN(WIDTH, HIDDEN, 2, nonlinearity="relu"), torch.randn(STEPS, ROWS, WIDTH))
    for network in NETWORKS.values():
        agree(network(WIDTH, HIDDEN), torch.randn(STEPS, WIDTH))


def test_a_first_state_and_its_gradient(network):
    model = network(WIDTH, HIDDEN, 2)

    class WithState(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, *states):
            return self.model(x, states if len(states) > 1 else states[0])

    states = [torch.randn(2, ROWS, HIDDEN) for _ in range(1 + (network is nn.LSTM))]
    agree(WithState(), torch.randn(STEPS, ROWS, WIDTH), *states)


class Packed(nn.Module):
    """Packs sequences of several lengths."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        lengths = torch.tensor([2, 6, 1, 4])
        return self.model(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_packed_sequences(network, options):
    agree(Packed(network(WIDTH, HIDDEN, batch_first=True, **options)), torch.randn(ROWS, STEPS, WIDTH))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_only_the_results_stay(gpus, network, context):
    model = network(WIDTH, HIDDEN, 2).to("cuda:1")
    with context():
        x = torch.randn(STEPS, ROWS, WIDTH).to("cuda:1")
        before = gpus.live_bytes(1)
        output, states = model(x)
        num_states = 1 + (network is nn.LSTM)
        assert gpus.live_bytes(1) == before + block(STEPS, ROWS, HIDDEN) + num_states * block(2, ROWS, HIDDEN)
    del output, states


KEPT = {nn.LSTM: 6, nn.GRU: 4, nn.RNN: 1}


@pytest.mark.parametrize("packed", [False, True])
def test_what_one_kernel_keeps(gpus, network, packed):
    """Of each layer, direction and step of a row: gates, and an LSTM's cell and its tanh."""
    model = network(WIDTH, 64, 2, bidirectional=True, batch_first=True).to("cuda:1")
    model = Packed(model) if packed else model
    x = torch.randn(ROWS, STEPS, WIDTH).to("cuda:1")
    before = gpus.live_bytes(1)
    output, last = model(x)
    steps = 2 + 6 + 1 + 4 if packed else ROWS * STEPS
    reserve = block(steps * 2 * 2 * 64 * KEPT[network])
    states = (1 + (network is nn.LSTM)) * block(4, ROWS, 64)
    held = gpus.live_bytes(1) - before
    beside = block(steps, WIDTH) + 3 * 512 if packed else 0  # the packed data, and the order of the rows
    least = block(steps, 128) + 2 * states + reserve  # the output, first and last states
    assert least <= held <= least + beside + (states if packed else 0)
    del output, last


def test_weights_of_a_replica_are_copied_into_one_buffer(gpus):
    def kept(index, model):
        gpus.reset_peaks()
        output = model(torch.ones(2 * ROWS, STEPS, WIDTH))[0]
        held = gpus.live_bytes(index)
        del output
        return held

    model = nn.LSTM(WIDTH, HIDDEN, batch_first=True).cuda()
    weights = sum(parameter.numel() for parameter in model.parameters())
    reserve, alone = block(ROWS * STEPS * HIDDEN * 6 + weights), block(ROWS * STEPS * HIDDEN * 6)
    assert reserve > alone
    held = kept(1, nn.DataParallel(model, device_ids=[0, 1]))
    parts = (
        block(ROWS, STEPS, WIDTH) + block(ROWS, STEPS, HIDDEN) + 2 * block(1, ROWS, HIDDEN) + block(weights)
    )
    assert held == parts + reserve


@pytest.mark.parametrize(
    ("kind", "states"),
    [(nn.LSTMCell, ("cpu", "cuda")), (nn.LSTMCell, ("cuda", "cpu")), (nn.GRUCell, ("cpu",))],
)
def test_a_cell_refuses_a_state_left_on_the_cpu(kind, states):
    hidden = [torch.zeros(ROWS, HIDDEN, device=state) for state in states]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        kind(WIDTH, HIDDEN).cuda()(torch.zeros(ROWS, WIDTH).cuda(), hidden if len(hidden) > 1 else hidden[0])


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_a_cell_with_its_data_left_on_the_cpu_fails_as_a_linear_layer(kind):
    with pytest.raises(RuntimeError, match=r"got mat1 is on cpu, .* wrapper_CUDA_addmm\)"):
        kind(WIDTH, HIDDEN).cuda()(torch.zeros(ROWS, WIDTH))
