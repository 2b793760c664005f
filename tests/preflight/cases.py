"""For each rule a model that has the pitfall, and its fixed twin: one table that the tests go through.

A case is a function that returns (model, inputs), as a factory of `dpdemo check` does; it runs inside the
block of
virtual GPUs. Its name says what is wrong, or right.
"""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Case:
    """`says` are words of the finding's message: those that name the cause."""

    code: str
    factory: object
    says: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    options: dict = field(default_factory=dict)

    def __str__(self):
        return f"{self.code}-{self.factory.__name__}"


TRIGGERS: list[Case] = []
TWINS: list[Case] = []


def trigger(code, *says, also=(), **options):
    """The rule finds it, and says these words; `also` lists other rules that are right to speak."""
    return lambda factory: TRIGGERS.append(Case(code, factory, says, tuple(also), options)) or factory


def twin(code, also=(), **options):
    """The rule, and every other one but `also`, finds nothing."""
    return lambda factory: TWINS.append(Case(code, factory, (), tuple(also), options)) or factory


class Net(nn.Module):
    """One linear layer, for models that only differ in their forward."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)


def x(rows=8):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))


# ---- DP2 scatter ----


class TimesWeight(Net):
    def forward(self, x, w):
        return self.fc(x) * w.mean()


@trigger("DP201", "`w` has 1 of 8 rows", "2 of 8 samples", "1 of 4 GPUs")
def a_lone_weight_cuts_the_batch():
    return TimesWeight(), (x(), torch.tensor([2.0]))


@trigger("DP201", "`batch['w']`", "2 of 8")
def a_short_tensor_in_a_dict_cuts_the_batch():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch["x"]) * batch["w"]

    return Model(), ({"x": x(), "w": torch.ones(1)},)


@trigger("DP201", "`positions`", "2 of 8")
def position_ids_of_one_row_cut_the_batch():
    class Model(Net):
        def forward(self, x, positions):
            return self.fc(x + positions)

    return Model(), {"x": x(), "positions": torch.ones(1, 4)}


@twin("DP201")
def position_ids_are_expanded_to_the_batch():
    class Model(Net):
        def forward(self, x, positions):
            return self.fc(x + positions)

    return Model(), {"x": x(), "positions": torch.ones(1, 4).expand(8, -1)}


class Optional(Net):
    def forward(self, x=None, scale=1.0):
        return self.fc(torch.zeros(1, 4, device=self.fc.weight.device) if x is None else x) * scale


@trigger("DP202", "without `x`", "replica 3")
def a_starved_replica_runs_on_defaults():
    return Optional(), ((x(),), {"scale": 2.0})


@twin("DP202")
def all_arguments_by_keyword_starve_nobody():
    return Optional(), {"x": x(), "scale": 2.0}


class Scaled(Net):
    def forward(self, x, scale=1.0):
        return self.fc(x) * scale


@trigger("DP203", "without `x`", "replica 3", "batch of 5")
def a_flag_by_keyword_outnumbers_the_chunks():
    return Scaled(), ((x(),), {"scale": 2.0})


@twin("DP203")
def a_flag_by_position_is_cut_to_the_chunks():
    return Scaled(), (x(), 2.0)


class Masked(Net):
    def forward(self, x, mask=None):
        return self.fc(x) * mask


@trigger("DP204", "`mask` gives 1 of 4 chunks", "kwargs_tup 1")
def a_short_keyword_beside_a_positional_batch():
    return Masked(), ((x(),), {"mask": torch.ones(1, 3)})


@twin("DP204")
def a_keyword_as_long_as_the_batch():
    return Masked(), ((x(),), {"mask": torch.ones(8, 3)})


@trigger("DP205", "`classes`", "when each replica gets it whole")
def class_weights_as_long_as_the_batch_are_cut():
    class Model(Net):
        def forward(self, x, classes):
            return self.fc(x) * classes.sum()

    return Model(), (x(), torch.arange(8.0))


@trigger("DP205", "`A` has 7 rows and the batch 8")
def a_matrix_is_cut():
    class Model(Net):
        def forward(self, x, A):
            return (
                self.fc(x).sum(1, keepdim=True)
                @ A.sum(1, keepdim=True)[:1]
                @ torch.ones_like(A[:1, :7])
                @ A.T[:7]
            )

    return Model(), (x(), torch.eye(7))


@twin("DP205")
def a_matrix_is_a_buffer():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("A", torch.eye(3))

        def forward(self, x):
            return self.fc(x) @ self.A

    return Model(), x()


class Divided(Net):
    def forward(self, x, count):
        return self.fc(x) / count


@trigger("DP206", "`count` is a tensor of shape ()")
def a_count_is_a_tensor_without_dimensions():
    return Divided(), (x(), torch.tensor(2.0))


@twin("DP206")
def a_count_is_a_number():
    return Divided(), (x(), 2.0)


# ---- DP3 replica ----


@trigger("DP301", "`steps` goes from 0 to 1", "stays 0")
def a_counter_never_counts():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return self.fc(x)

    return Model(), x()


@trigger("DP301", "`features` goes from absent")
def remembered_features_are_lost():
    class Model(Net):
        def forward(self, x):
            self.features = self.fc(x).detach()
            return self.features.relu()

    return Model(), x()


@twin("DP301")
def features_are_returned():
    class Model(Net):
        def forward(self, x):
            features = self.fc(x)
            return features.relu(), features

    return Model(), x()


class Averaging(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))


@trigger("DP305", "`mean`", "assigns it anew")
def a_buffer_assigned_anew_is_lost():
    class Model(Averaging):
        def forward(self, x):
            y = self.fc(x)
            self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
            return y

    return Model(), x()


@trigger("DP305", "`mean`", "chunk 0 alone")
def a_running_average_follows_chunk_0():
    class Model(Averaging):
        def forward(self, x):
            y = self.fc(x)
            self.mean.mul_(0.9).add_(0.1 * y.detach().mean(0))
            return y

    return Model(), x()


@trigger("DP305", "`queue`", "chunk 0 alone", also=["DP301"])
def a_queue_takes_chunk_0_only():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("queue", torch.zeros(16, 3))
            self.at = 0

        def forward(self, x):
            y = self.fc(x)
            self.queue[self.at : self.at + len(y)] = y.detach()
            self.at += len(y)
            return y

    return Model(), x()


@twin("DP305")
def a_buffer_counts_batches_in_place():
    class Model(Averaging):
        def forward(self, x):
            self.mean.add_(1)
            return self.fc(x)

    return Model(), x()


def with_batchnorm(norm):
    return nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 2))


@trigger("DP306", "chunks of 4 instead of 16", also=["DP316"])
def batchnorm_normalises_chunks():
    return with_batchnorm(nn.BatchNorm1d(8)), x(16)


@twin("DP306")
def groupnorm_knows_no_batch():
    return with_batchnorm(nn.GroupNorm(2, 8)), x(16)


@trigger("DP307", "plain BatchNorm", also=["DP316"])
def sync_batchnorm_does_not_synchronise():
    return with_batchnorm(nn.SyncBatchNorm(8)), x(16)


@twin("DP307")
def groupnorm_needs_no_synchronising():
    return with_batchnorm(nn.GroupNorm(4, 8)), x(16)


@trigger("DP309", "`feats`", "a list of 1", "a list of 4")
def features_are_appended_to_a_shared_list():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.feats = []

        def forward(self, x):
            self.feats.append(self.fc(x).detach())
            return self.fc(x)

    return Model(), x()


@twin("DP309")
def a_list_on_self_is_only_read():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scales = [1.0, 2.0]

        def forward(self, x):
            return self.fc(x) * self.scales[1]

    return Model(), x()


@trigger("DP311", "`zero_grad()` in forward")
def zero_grad_in_forward():
    class Model(Net):
        def forward(self, x):
            self.zero_grad()
            return self.fc(x)

    return Model(), x()


@trigger("DP311", "goes backward in each of the 4 replicas")
def backward_in_forward():
    class Model(Net):
        def forward(self, x):
            with torch.enable_grad():
                self.fc(x).sum().backward()
            return self.fc(x)

    return Model(), x()


@twin("DP311")
def gradients_are_taken_of_inputs():
    class Model(Net):
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self.fc(x).sum(), x, create_graph=True)
            return self.fc(x).sum(1) + slope.square().sum(1)

    return Model(), x()


@trigger("DP313", "`fc.weight`", "replica 0")
def a_weight_decays_in_forward():
    class Model(Net):
        def forward(self, x):
            with torch.no_grad():
                self.fc.weight.data.mul_(0.5)
            return self.fc(x)

    return Model(), x()


@twin("DP313")
def a_weight_is_scaled_in_a_copy():
    class Model(Net):
        def forward(self, x):
            return functional.linear(x, self.fc.weight * 0.5, self.fc.bias)

    return Model(), x()


# ---- DP5 loss ----


class Classifier(Net):
    reduction = "mean"

    def forward(self, x, y):
        return functional.cross_entropy(self.fc(x), y, reduction=self.reduction)


@trigger("DP501", "loss.sum() are 4.00 times", also=["DP401"])
def a_loss_is_averaged_in_each_replica():
    return Classifier(), (x(), torch.arange(8) % 3)


@trigger("DP501", "NaN in a replica", also=["DP401"])
def a_chunk_without_labels_makes_the_loss_nan():
    labels = torch.arange(8) % 3
    labels[:2] = -100
    return Classifier(), (x(), labels)


@twin("DP501")
def losses_are_returned_for_each_sample():
    model = Classifier()
    model.reduction = "none"
    return model, (x(), torch.arange(8) % 3)


@trigger("DP502", "depends on the others of its batch")
def samples_are_centred_over_the_batch():
    class Model(Net):
        def forward(self, x):
            h = self.fc(x)
            return h - h.mean(0)

    return Model(), x()


@twin("DP502")
def samples_are_centred_by_themselves():
    class Model(Net):
        def forward(self, x):
            h = self.fc(x)
            return h - h.mean(1, keepdim=True)

    return Model(), x()
