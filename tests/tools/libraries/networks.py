"""Models of other libraries under DataParallel on virtual GPUs, against chunks by hand on the CPU.

Not collected by itself: CONTRIBUTING.md has the command. Nothing is downloaded.
"""

from __future__ import annotations

import pytest
import torch
from byhand import NUM_GPUS, assert_agrees, state_of
from torch import nn

from dpdemo.virtual import virtual_gpus

pytestmark = pytest.mark.filterwarnings("default")  # what the libraries warn of is not ours


def test_torch_geometric_scatters_graphs_with_its_own_data_parallel():
    data = pytest.importorskip("torch_geometric.data")
    loaders = pytest.importorskip("torch_geometric.loader")
    layers = pytest.importorskip("torch_geometric.nn")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layers.GCNConv(4, 8), layers.GATConv(8, 3)

        def forward(self, batch):
            hidden = self.first(batch.x, batch.edge_index).relu()
            return layers.global_mean_pool(self.second(hidden, batch.edge_index), batch.batch)

    torch.manual_seed(2)
    graphs = [
        data.Data(
            x=torch.randn(3 + place, 4, dtype=torch.float64),
            edge_index=torch.randint(3 + place, (2, 8)),
            y=torch.tensor([place % 3]),
        )
        for place in range(8)
    ]

    def trained(model, parallel, split):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outputs = []
        for some in loaders.DataListLoader(graphs, batch_size=8):
            output = parallel(split(some))
            targets = torch.cat([graph.y for graph in some]).to(output.device)
            nn.functional.cross_entropy(output, targets).backward()
            optimizer.step()
            outputs.append(output.detach().cpu())
        return outputs, state_of(model)

    def network():
        torch.manual_seed(1)
        return Net().double()

    plain = network()
    expected = trained(plain, plain, data.Batch.from_data_list)  # graphs do not see one another
    with virtual_gpus(NUM_GPUS):
        model = network().cuda()
        found = trained(model, layers.DataParallel(model), lambda some: some)
    torch.testing.assert_close(found, expected)


def test_captum_attributes_through_layers_of_a_parallel_model():
    attr = pytest.importorskip("captum.attr")

    def program(wrap, device):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 3)).double()
        parallel = wrap(net.to(device))
        batch = torch.randn(6, 3, 16, 16, dtype=torch.float64).to(device)
        ids = {"device_ids": list(range(NUM_GPUS))} if device == "cuda" else {}
        found = [
            attr.IntegratedGradients(parallel).attribute(batch, target=1, n_steps=4),
            attr.Saliency(parallel).attribute(batch, target=0),
            attr.Occlusion(parallel).attribute(batch, (3, 8, 8), target=2),
        ]
        if device == "cuda":
            found.append(attr.DeepLift(parallel).attribute(batch, target=1))
            found.append(attr.LayerActivation(parallel, net[1], **ids).attribute(batch))
            found.append(attr.LayerConductance(parallel, net[1], **ids).attribute(batch, target=1, n_steps=4))
            found.append(attr.LayerGradCam(parallel, net[0], **ids).attribute(batch, target=1))
        else:
            found.append(attr.DeepLift(net).attribute(batch, target=1))  # it takes each module once
            found.append(attr.LayerActivation(net, net[1]).attribute(batch))
            found.append(attr.LayerConductance(net, net[1]).attribute(batch, target=1, n_steps=4))
            found.append(attr.LayerGradCam(net, net[0]).attribute(batch, target=1))
        return [value.detach().cpu() for value in found]

    assert_agrees(program)
