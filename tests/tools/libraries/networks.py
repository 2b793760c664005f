"""Models of other libraries under DataParallel on virtual GPUs, against chunks by hand on the CPU.

Not collected by itself: CONTRIBUTING.md has the command. Nothing is downloaded.
"""

import pytest
import torch
from byhand import NUM_GPUS, assert_agrees, state_of
from torch import nn

from dpdemo.virtual import virtual_gpus

pytestmark = pytest.mark.filterwarnings("default")  # what the libraries warn of is not ours


def images(rows=6, size=16, channels=3):
    torch.manual_seed(2)
    return torch.randn(rows, channels, size, size, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("resnet10t", {}, 32),
        (
            "vit_tiny_patch16_224",
            {"img_size": 16, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 2},
            16,
        ),
        ("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (4, 8, 8, 8)}, 32),
    ],
)
def test_timm_trains_with_its_own_optimizer_schedule_loss_and_average(name, options, size):
    timm = pytest.importorskip("timm")
    loss_kinds = pytest.importorskip("timm.loss")
    optimizers = pytest.importorskip("timm.optim")
    schedules = pytest.importorskip("timm.scheduler")
    utilities = pytest.importorskip("timm.utils")

    def program(wrap, device):
        torch.manual_seed(1)
        model = timm.create_model(name, num_classes=5, **options).double().to(device)
        average = utilities.ModelEmaV3(model, decay=0.9)
        parallel = wrap(model)
        optimizer = optimizers.create_optimizer_v2(model, "momentum", lr=0.01, weight_decay=0.01)
        schedule = schedules.CosineLRScheduler(optimizer, t_initial=3)
        batch, targets = images(9, size).to(device), torch.arange(9).remainder(5).to(device)
        losses = []
        for step in range(2):
            loss = loss_kinds.LabelSmoothingCrossEntropy(0.1)(parallel(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step(step + 1)
            average.update(model)
            losses.append(loss.item())
        with torch.no_grad():
            scores = parallel.eval()(batch)
        top = [figure.item() for figure in utilities.accuracy(scores, targets, topk=(1, 3))]
        return losses, scores.cpu(), top, state_of(parallel), state_of(average.module)

    assert_agrees(program)


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


def test_monai_trains_a_unet_with_its_own_engine_and_looks_through_windows():
    engines = pytest.importorskip("monai.engines")
    inferers = pytest.importorskip("monai.inferers")
    losses = pytest.importorskip("monai.losses")
    nets = pytest.importorskip("monai.networks.nets")

    def program(wrap, device):
        torch.manual_seed(1)
        net = nets.UNet(
            spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1
        )
        parallel = wrap(net.double().to(device))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        batch = images(6, channels=1)
        rows = [{"image": image, "label": (image > 0).double()} for image in batch]
        trainer = engines.SupervisedTrainer(
            device=torch.device(device),
            max_epochs=2,
            train_data_loader=torch.utils.data.DataLoader(rows, batch_size=6),
            network=parallel,
            optimizer=optimizer,
            loss_function=losses.DiceLoss(to_onehot_y=True, softmax=True),
        )
        trainer.run()
        parallel.eval()
        with torch.no_grad():
            seen = inferers.sliding_window_inference(images(3, 24, 1).to(device), (16, 16), 4, parallel)
        return trainer.state.output[0]["loss"], seen.cpu(), state_of(parallel)

    assert_agrees(program)


def test_captum_attributes_through_layers_of_a_parallel_model():
    attr = pytest.importorskip("captum.attr")

    def program(wrap, device):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 3)).double()
        parallel = wrap(net.to(device))
        batch = images().to(device)
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
