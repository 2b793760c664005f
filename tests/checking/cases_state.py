"""Rules of state and of chunks in replicas: DP301 to DP316."""

import torch
from casetable import Counting, Net, Recurrent, steps, trigger, twin, with_batchnorm, x
from torch import nn
from torch.nn import functional


@trigger("DP301", "`steps` goes from 0 to 1", "stays 0")
def a_counter_never_counts():
    return Counting(), x()


@trigger("DP301", "`features` is set in forward and lost")
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


@trigger("DP309", "`cache`")
def the_last_input_is_cached_in_a_shared_dict():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def forward(self, x):
            self.cache["x"] = x
            return self.fc(self.cache["x"])

    return Model(), x()


@trigger("DP309", "`masks`", "a dict of 1")
def a_cache_of_masks_knows_lengths_and_no_gpus():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.masks = {}

        def mask(self, length, device):
            if length not in self.masks:
                self.masks[length] = torch.ones(length, device=device)
            return self.masks[length]

        def forward(self, x):
            return self.fc(x * self.mask(x.size(1), x.device))

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


@trigger("DP311", "`.grad` of a parameter is None")
def forward_reads_a_gradient():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) * (2.0 if self.fc.weight.grad is None else 3.0)

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


@trigger("DP313", "forward changes the parameter `fc.weight` in place")
def a_weight_that_wants_gradients_decays_in_forward():
    class Model(Net):
        def forward(self, x):
            with torch.no_grad():
                self.fc.weight.mul_(0.9)
            return self.fc(x)

    return Model(), x()


@twin("DP313")
def a_weight_is_scaled_in_a_copy():
    class Model(Net):
        def forward(self, x):
            return functional.linear(x, self.fc.weight * 0.5, self.fc.bias)

    return Model(), x()


@trigger("DP315", "`rnn`: call flatten_parameters()")
def an_rnn_is_called_as_it_is():
    class Model(Recurrent):
        def forward(self, x):
            return self.rnn(x)[0]

    return Model(), steps()


@twin("DP315")
def an_rnn_is_flattened_first():
    class Model(Recurrent):
        def forward(self, x):
            self.rnn.flatten_parameters()
            return self.rnn(x)[0]

    return Model(), steps()


@trigger("DP316", "batch of 7 is cut into 2+2+2+1", also=["DP306"], data_size=39)
def the_last_batch_ends_in_a_lone_sample():
    return with_batchnorm(nn.BatchNorm1d(8)), x(16)


@twin("DP316", also=["DP306"], data_size=40)
def the_last_batch_is_even():
    return with_batchnorm(nn.BatchNorm1d(8)), x(16)


# ---- objects on self, and state that nothing depends on ----


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, rows):
        self.total += value * rows
        self.count += rows


@trigger("DP309", "`meter`", "count=")
def a_meter_on_self_is_updated():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.meter = Meter()

        def forward(self, x):
            y = self.fc(x)
            self.meter.update(y.mean().item(), len(x))
            return y

    return Model(), x()


@trigger("DP301", "`0.steps` goes from 0 to 1")
def a_counter_counts_behind_dropout():
    return nn.Sequential(Counting(), nn.Dropout(0.2)), x()


class Causal(Net):
    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        if self.mask is None or self.mask.device != x.device:
            self.mask = torch.tril(torch.ones(4, 4, device=x.device))
        return self.fc(x @ self.mask)


@twin("DP301", also=["DP301"])
def a_mask_is_made_where_it_is_missing():
    return Causal(), x()


@twin("DP309", also=["DP309"])
def a_cache_has_an_entry_for_each_length_and_gpu():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def forward(self, x):
            key = (x.size(1), x.device)
            if key not in self.cache:
                self.cache[key] = torch.ones(4, device=x.device)
            return self.fc(x * self.cache[key])

    return Model(), x()


@twin("DP301", also=["DP301"])
def scratch_attributes_are_set():
    class Model(Net):
        def forward(self, x):
            self.last_shape = x.shape
            self.tmp = self.fc(x)
            return self.tmp.relu()

    return Model(), x()


class Teaching(Net):
    def __init__(self, drop=0.0):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(4, 3), nn.Dropout(drop), nn.Sequential(nn.ReLU(), nn.ReLU()))

    def forward(self, x):
        self.teacher.eval()
        with torch.no_grad():
            aim = self.teacher(x)
        return self.fc(x) - aim


@twin("DP301", also=["DP301"])
def a_teacher_is_put_in_evaluation():
    return Teaching(), x()


@trigger("DP316", "GroupNorm cannot train on one sample", also=["DP213"], gpus=4)
def a_groupnorm_of_lone_numbers_meets_a_lone_sample():
    return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(8, 8)), x(16)


@twin("DP305")
def spectral_norm_has_converged():
    """Its power iteration moves the vectors by no more than rounding."""
    layer = nn.utils.spectral_norm(nn.Linear(4, 4), n_power_iterations=50)
    for _ in range(20):
        layer(x())
    layer._forward_pre_hooks[next(iter(layer._forward_pre_hooks))].n_power_iterations = 1
    return nn.Sequential(layer, nn.Linear(4, 3)), x()


@trigger("DP301", "`fc` goes from None to Linear")
def a_layer_is_made_at_the_first_call():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.fc = nn.Linear(4, 5), None

        def forward(self, x):
            h = self.first(x)
            if self.fc is None:
                self.fc = nn.Linear(h.size(1), 2).to(h.device)
            return self.fc(h)

    return Model(), x()


@trigger("DP308", "`Linear.parameters()` is empty in replicas")
def a_teacher_follows_its_student_in_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)

        def forward(self, x):
            for mine, old in zip(self.student.parameters(), self.teacher.parameters(), strict=True):
                old.data.mul_(0.9).add_(mine.data, alpha=0.1)
            return self.student(x), self.teacher(x)

    return Model(), x()


@trigger("DP313", "`critic.0.weight`", "replica 0")
def a_critic_is_clipped_in_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.critic = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

        def forward(self, x):
            self.critic[0].weight.data.clamp_(-0.01, 0.01)
            return self.critic(x)

    return Model(), x()


@trigger("DP311", "goes backward in each of the 4 replicas", also=["DP401"])
def a_model_trains_itself():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

        def forward(self, x):
            with torch.enable_grad():
                loss = self.fc(x).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            return loss.detach()

    return Model(), x()


@trigger("DP301", "`last` goes from None to a tensor")
def a_result_is_mixed_with_the_last_one():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x):
            y = self.fc(x)
            mixed = y if self.last is None else 0.5 * (y + self.last)
            self.last = y.detach()
            return mixed

    return Model(), x()


@trigger("DP309", "`skips` is filled and emptied by all replicas at once")
def what_is_left_for_later_layers_is_on_self():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
            self.up = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))
            self.skips = []

        def forward(self, x):
            for layer in self.down:
                x = layer(x).relu()
                self.skips.append(x)
            for layer in self.up:
                x = layer(torch.cat([x, self.skips.pop()], 1))
            return x

    return Model(), x()


@twin("DP309")
def what_is_emptied_is_emptied_outside_of_forward():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.names = ["fc"]

        def rename(self, name):
            self.names.pop()
            self.names.append(name)

        def forward(self, x):
            return getattr(self, self.names[0])(x)

    return Model(), x()


@trigger("DP306", "`norm`", "chunks of 2 instead of 8 samples", also=["DP316"])
def a_class_makes_its_norm():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(self.fc(x))

    return Model(), x()


@trigger("DP309", "`features`", "a list of 2", "a list of 8")
def features_are_collected_in_a_loop():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
            self.features = []

        def forward(self, x):
            for stage in self.stages:
                x = stage(x).relu()
                self.features.append(x)
            return x

    return Model(), x()


@trigger("DP309", "`kept` is filled and emptied by all replicas at once")
def a_dict_on_self_is_cleared_before_forward_ends():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
            self.kept = {}

        def forward(self, x):
            self.kept["low"] = self.body(x)
            y = self.head(self.kept["low"])
            self.kept.clear()
            return y

    return Model(), x()


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(3, 3)
        self.weights = None

    def forward(self, y):
        self.weights = self.query(y).softmax(-1)
        return self.weights * y


@trigger("DP301", "`attention.weights` goes from None to a tensor of shape (8, 3)")
def weights_of_attention_are_read_behind_the_call():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.attention = Attending()

        def forward(self, x):
            return self.attention(self.fc(x))

        def penalty(self):
            return self.attention.weights.sum(1).square().mean()

    return Model(), x()


class Prototypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("means", torch.zeros(2, 3))

    @torch.no_grad()
    def update(self, y, labels):
        marks = nn.functional.one_hot(labels, 2).to(y.dtype)
        new = 0.9 * self.means + 0.1 * marks.t() @ y / marks.sum(0).clamp(min=1)[:, None]
        self.means.copy_(torch.where(marks.sum(0)[:, None] > 0, new, self.means))

    def forward(self, y):
        return y @ self.means.clone().t()


@trigger("DP305", "the buffer `head.means` ends as")
def a_method_of_a_part_updates_its_prototypes():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.head = Prototypes()

        def forward(self, x, labels):
            y = self.fc(x)
            logits = self.head(y)
            if self.training:
                self.head.update(y.detach(), labels)
            return logits

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows) % 2)


@trigger("DP305", "the buffer `u` changes on one GPU and not under DataParallel")
def a_power_iteration_puts_its_vector_on_self():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("u", functional.normalize(torch.arange(3.0), dim=0))

        def forward(self, x):
            w = self.fc.weight
            with torch.no_grad():
                v = functional.normalize(w.t() @ self.u, dim=0)
                self.u = functional.normalize(w @ v, dim=0)
            return functional.linear(x, w / (self.u @ w @ v))

    return Model(), x()


@trigger("DP306", "`norm` and others", also=["DP316"])
def norms_have_arguments_and_a_single_channel():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, momentum=0.2, affine=False)
            self.last, self.end = nn.Linear(3, 1), nn.BatchNorm1d(1)

        def forward(self, x):
            return self.end(self.last(self.norm(self.fc(x))))

    return Model(), x()
