"""For each rule a model that has the pitfall, and its fixed twin: one table that the tests go through.

A case is a function that returns (model, inputs), as a factory of `dpdemo check` does; it runs inside the
block of
virtual GPUs. Its name says what is wrong, or right.
"""

import collections
import copy
import functools
import types
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, eq=False)
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


# ---- DP1 wrapper ----


def wrapped(model, **options):
    return nn.DataParallel(model.to("cuda:0"), **options)


@trigger("DP101", "`fc`", "`.module.fc`")
def an_attribute_is_read_from_the_wrapper():
    model = wrapped(Net())
    return model.fc, x()


class Head(nn.Module):
    """A model of which one part is in DataParallel."""

    def __init__(self):
        super().__init__()
        self.net = nn.DataParallel(nn.Linear(4, 3).to("cuda:0"))

    def forward(self, x):
        return self.net(x)


@trigger("DP101", "`out_features`")
def forward_reads_an_attribute_from_a_wrapper():
    class Model(Head):
        def forward(self, x):
            return self.net(x) / self.net.out_features

    return Model(), x()


@twin("DP101")
def forward_reads_an_attribute_from_the_module():
    class Model(Head):
        def forward(self, x):
            return self.net(x) / self.net.module.out_features

    return Model(), x()


@trigger("DP102", "`module.fc.bias`", "prefix `module.`")
def a_wrappers_state_is_loaded_loosely():
    model = Linear()
    model.load_state_dict(wrapped(Linear()).state_dict(), strict=False)
    return model, x()


@trigger("DP102", "prefix `module.`")
def a_wrappers_state_is_loaded():
    model = Linear()
    model.load_state_dict(wrapped(Linear()).state_dict())
    return model, x()


@twin("DP102")
def the_modules_state_is_loaded():
    model = Linear()
    model.load_state_dict(wrapped(Linear()).module.state_dict())
    return model, x()


class Linear(Net):
    def forward(self, x):
        return self.fc(x)


@trigger("DP103", "`fc.weight` and `fc.bias` on cuda:1", "cuda:0")
def a_model_is_on_the_second_gpu():
    return nn.DataParallel(Linear().to("cuda:1"), device_ids=[0, 1]), x()


@trigger("DP103", "`extra` on cpu")
def a_parameter_is_added_after_the_move():
    model = Linear().to("cuda:0")
    model.extra = nn.Parameter(torch.zeros(3))
    return nn.DataParallel(model), x()


@twin("DP103")
def a_model_is_on_the_first_gpu_of_its_list():
    return nn.DataParallel(Linear().to("cuda:1"), device_ids=[1, 0]), x()


@trigger("DP104", "Invalid device id", "4 GPUs")
def a_gpu_is_named_that_is_not_there():
    return wrapped(Linear(), device_ids=[0, 7]), x()


@trigger("DP104", "list index out of range")
def no_gpu_is_named():
    return wrapped(Linear(), device_ids=[]), x()


@trigger("DP104", "cuda:0 is named 2 times")
def a_gpu_is_named_twice():
    return wrapped(Linear(), device_ids=[0, 0]), x()


@twin("DP104")
def three_gpus_are_named():
    return wrapped(Linear(), device_ids=[0, 1, 3]), x(12)


@trigger("DP105", "`net` is a DataParallel that is never called")
def the_wrapper_is_bypassed():
    class Model(Head):
        def forward(self, x):
            return self.net.module(x)

    return Model(), x()


@twin("DP105")
def the_wrapper_is_called():
    return Head(), x()


@trigger("DP106", "`module.0` is a DataParallel inside")
def a_wrapper_in_a_wrapper():
    inner = nn.DataParallel(nn.Linear(4, 4))
    return wrapped(nn.Sequential(inner, nn.Linear(4, 3))), x(16)


@trigger("DP106", "`module` is a DataParallel inside `DataParallel`")
def a_model_is_wrapped_twice():
    return nn.DataParallel(wrapped(Linear())), x(16)


@twin("DP106")
def a_model_is_wrapped_once():
    return wrapped(Linear()), x(16)


@trigger("DP107", "`0` is a ScriptModule")
def a_scripted_layer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        scripted = torch.jit.script(nn.Linear(4, 3))
    return nn.Sequential(scripted, nn.ReLU()), x()


@twin("DP107")
def a_layer_of_python():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()), x()


@trigger("DP108", "`0.weight` and `0.bias` are not initialised")
def a_lazy_layer():
    return nn.Sequential(nn.LazyLinear(3)), x()


@twin("DP108")
def a_lazy_layer_that_was_called_once():
    model = nn.Sequential(nn.LazyLinear(3))
    model(x())
    return model, x()


@trigger("DP109", "__new__() missing 1 required")
def a_class_whose_new_wants_arguments():
    class Model(Linear):
        def __new__(cls, config):
            return super().__new__(cls)

        def __init__(self, config):
            super().__init__()

    return Model({}), x()


@twin("DP109")
def a_class_whose_new_can_do_without():
    class Model(Linear):
        def __new__(cls, *args):
            return super().__new__(cls)

        def __init__(self, config):
            super().__init__()

    return Model({}), x()


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


@trigger("DP202", "replica 3 is called without `mask`", also=["DP204"])
def a_starved_replica_runs_without_a_mask():
    class Model(Net):
        def forward(self, a, b, c, x, mask=None):
            return self.fc(x) + (a + b + c if mask is None else mask.sum())

    return Model(), ((0, 0, 0, x()), {"mask": torch.zeros(3, 3)})


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


@trigger("DP207", "`rows` (ndarray of 8) is not cut")
def an_array_goes_to_every_replica():
    class Model(Net):
        def forward(self, rows):
            return self.fc(torch.as_tensor(rows).to(self.fc.weight.device))

    return Model(), np.ones((8, 4), dtype=np.float32)


@trigger("DP207", "`names` (a list of 8 str)")
def a_list_of_text_goes_to_every_replica():
    class Model(Net):
        def forward(self, x, names):
            lengths = torch.tensor([len(name) for name in names], device=x.device)
            return self.fc(x) * lengths[:, None]

    return Model(), (x(), [f"image {i}" for i in range(8)])


@trigger("DP207", "no argument is a tensor", "4 replicas")
def forward_makes_its_own_batch():
    class Model(Net):
        def forward(self, rows):
            return self.fc(torch.ones(rows, 4, device=self.fc.weight.device))

    return Model(), lambda rows: (rows,)


@twin("DP207")
def lengths_of_text_are_a_tensor():
    class Model(Net):
        def forward(self, x, lengths):
            return self.fc(x) * lengths[:, None]

    return Model(), (x(), torch.arange(8))


@dataclass
class Batch:
    x: torch.Tensor


@trigger("DP208", "`batch` is a Batch that holds x on cuda:0")
def tensors_in_a_dataclass_stay_on_gpu_0():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch.x)

    return Model(), Batch(x())


@trigger("DP208", "`batch` is a UserDict")
def tensors_in_a_userdict_stay_on_gpu_0():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch["x"])

    return Model(), collections.UserDict(x=x())


@twin("DP208")
def tensors_in_a_dict_are_cut():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch["x"])

    return Model(), ({"x": x()},)


class Dictionary(Net):
    def forward(self, batch):
        return self.fc(batch["x"])


@trigger("DP209", "`batch`", "defaultdict", "scatter")
def a_defaultdict_as_argument():
    return Dictionary(), (collections.defaultdict(list, x=x()),)


@trigger("DP209", "`the result`", "defaultdict", "gather")
def a_defaultdict_as_result():
    class Model(Net):
        def forward(self, x):
            return collections.defaultdict(list, y=self.fc(x))

    return Model(), x()


@twin("DP209")
def an_ordered_dict_as_argument():
    return Dictionary(), (collections.OrderedDict(x=x()),)


@trigger("DP210", "`x`", "chunk 0 only")
def an_input_is_scaled_in_place():
    class Model(Net):
        def forward(self, x):
            x.mul_(2)
            return self.fc(x)

    return Model(), x()


@twin("DP210")
def an_input_is_scaled_in_a_copy():
    class Model(Net):
        def forward(self, x):
            return self.fc(x * 2)

    return Model(), x()


class Logging(Net):
    def forward(self, x, log):
        log.append(1)
        return self.fc(x)


@trigger("DP211", "`log`", "a list of 1", "a list of 4")
def an_empty_list_is_shared():
    return Logging(), (x(), [])


@trigger("DP211", "`log`", "a deque of 4")
def a_deque_is_shared():
    return Logging(), (x(), collections.deque())


@twin("DP211")
def a_list_is_only_read():
    class Model(Net):
        def forward(self, x, log):
            return self.fc(x) + len(log)

    return Model(), (x(), [])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 5, batch_first=True)


def steps(rows=8):
    return torch.randn(rows, 6, 4, generator=torch.Generator().manual_seed(1))


@trigger("DP212", "`state[0]` and `state[1]` has the batch on dimension 1")
def a_hidden_state_is_cut_along_its_layers():
    class Model(Recurrent):
        def forward(self, x, state):
            return self.rnn(x, state)[0]

    return Model(), (steps(), (torch.zeros(1, 8, 5), torch.zeros(1, 8, 5)))


@trigger("DP212", "made for the whole batch")
def a_hidden_state_is_made_for_the_whole_batch():
    class Model(Recurrent):
        def forward(self, x, rows):
            state = torch.zeros(1, rows, 5, device=x.device)
            return self.rnn(x, (state, state))[0]

    return Model(), lambda rows: (steps(rows), rows)


@twin("DP212")
def a_hidden_state_comes_batch_first():
    class Model(Recurrent):
        def forward(self, x, h, c):
            state = h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()
            return self.rnn(x, state)[0]

    return Model(), (steps(), torch.zeros(8, 1, 5), torch.zeros(8, 1, 5))


@trigger("DP213", "batch of 6 on 4 GPUs is cut into 2+2+2: 1 idle")
def a_batch_of_6_leaves_a_gpu_idle():
    return Linear(), x(6)


@trigger("DP213", "batch of 2", "2 idle", data_size=10)
def the_last_batch_leaves_gpus_idle():
    return Linear(), x(8)


@twin("DP213", data_size=10, drop_last=True)
def the_short_last_batch_is_left_out():
    return Linear(), x(8)


class Packing(Recurrent):
    options = {}  # noqa: RUF012 - never changed

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


@trigger("DP214", "without total_length")
def each_chunk_is_padded_to_its_own_longest():
    return Packing(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


@trigger("DP214", "`packed` is a PackedSequence")
def a_packed_sequence_as_argument():
    class Model(Recurrent):
        def forward(self, packed):
            return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=6)[0]

    lengths = torch.tensor([6, 6, 5, 5, 4, 3, 2, 1])
    return Model(), nn.utils.rnn.pack_padded_sequence(steps(), lengths, batch_first=True)


@twin("DP214")
def chunks_are_padded_to_the_whole_length():
    class Model(Recurrent):
        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)
            out, _ = self.rnn(packed)
            return nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.size(1))[0]

    return Model(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


class Lengths(Recurrent):
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=6)[0]


@trigger("DP215", "scatter moves the lengths", "1D CPU int64")
def lengths_are_moved_to_the_gpus():
    return Lengths(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


@twin("DP215")
def lengths_are_brought_back_to_the_cpu():
    class Model(Lengths):
        def forward(self, x, lengths):
            return super().forward(x, lengths.cpu())

    return Model(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


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


@trigger("DP302", "`scale` is a tensor of shape (3,) on cuda:0")
def a_plain_tensor_stays_on_gpu_0():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scale = torch.ones(3, device="cuda:0")

        def forward(self, x):
            return self.fc(x) * self.scale

    return Model(), x()


@trigger("DP302", "`scales`")
def tensors_in_a_list_stay_on_gpu_0():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scales = [torch.ones(3, device="cuda:0")]

        def forward(self, x):
            return self.fc(x) * self.scales[0]

    return Model(), x()


@twin("DP302")
def a_plain_tensor_is_a_buffer():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(3), persistent=False)

        def forward(self, x):
            return self.fc(x) * self.scale

    return Model(), x()


@twin("DP302")
def a_plain_tensor_is_moved_where_it_is_used():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scale = torch.ones(3)

        def forward(self, x):
            return self.fc(x) * self.scale.to(x.device)

    return Model(), x()


@trigger("DP303", "zeros to cuda:0")
def a_tensor_is_made_on_a_fixed_gpu():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) + torch.zeros(3, device="cuda:0")

    return Model(), x()


@trigger("DP303", "to to cuda:0")
def an_input_is_moved_to_the_device_of_self():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.device = torch.device("cuda:0")

        def forward(self, x):
            return self.fc(x.to(self.device))

    return Model(), x()


@trigger("DP303", "cuda to cuda:0")
def a_result_takes_a_detour_over_gpu_0():
    class Model(Net):
        def forward(self, x):
            return self.fc(x).cuda(0).to(x.device)

    return Model(), x()


@twin("DP303")
def a_tensor_is_made_where_the_input_is():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) + torch.zeros(3, device=x.device) + torch.zeros(3, device="cuda")

    return Model(), x()


@trigger("DP304", "`layers` is a list or attribute with a Linear")
def layers_in_a_plain_list():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(3, 3).to("cuda:0")]

        def forward(self, x):
            return self.layers[0](self.fc(x))

    return Model(), x()


@trigger("DP304", "`f` is the bound method _impl", "`Model`")
def a_bound_method_on_self():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.f = self._impl

        def _impl(self, x):
            return self.fc(x)

        def forward(self, x):
            return self.f(x)

    return Model(), x()


@trigger("DP304", "`f` is a lambda")
def a_lambda_on_self():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.f = lambda x: self.fc(x)  # noqa: PLW0108 - the pitfall

        def forward(self, x):
            return self.f(x)

    return Model(), x()


@trigger("DP304", "`forward` is a forward that holds `Model`")
def a_patched_forward():
    class Model(Linear):
        pass

    model = Model()
    model.forward = types.MethodType(lambda self, x: self.fc(x) * 2, model)
    return model, x()


@trigger("DP304", "`0` is compiled")
def a_layer_is_compiled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # virtual GPUs compile nothing
        layer = torch.compile(nn.Linear(4, 4), backend="eager")
    return nn.Sequential(layer, nn.Linear(4, 3)), x()


@trigger("DP304", "a compiled forward")
def a_forward_is_compiled_in_place():
    model = Linear()
    model._compiled_call_impl = functools.partial(Linear._call_impl, model)  # what .compile() stores
    return model, x()


@twin("DP304")
def layers_in_a_module_list():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3)])
            self.name = "_impl"

        def _impl(self, x):
            return self.layers[0](self.fc(x))

        def forward(self, x):
            return getattr(self, self.name)(x)

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty", "StopIteration")
def the_first_parameter_is_asked_for_its_device():
    class Model(Net):
        def forward(self, x):
            return self.fc(x.to(next(self.parameters()).device))

    return Model(), x()


@trigger("DP308", "results or gradients differ")
def a_penalty_over_parameters_is_zero():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) + sum(p.square().sum() for p in self.parameters())

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty in replicas")
def gradients_for_no_parameters():
    class Model(Net):
        def forward(self, x):
            with torch.enable_grad():
                y = self.fc(x)
                slopes = torch.autograd.grad(y.mean(0).sum(), list(self.parameters()), create_graph=True)
            return y + slopes[1].sum()

    return Model(), x()


@trigger("DP308", "`ParameterList.parameters()` is empty")
def a_parameter_list_is_empty_too():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([torch.ones(3), torch.ones(3)])

        def forward(self, x):
            return self.fc(x) * (1 + sum(self.scales.parameters()))

    return Model(), x()


@twin("DP308")
def weights_are_asked_by_name():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([torch.ones(3), torch.ones(3)])

        def forward(self, x):
            return self.fc(x.to(self.fc.weight.device)) * sum(self.scales) + self.fc.weight.square().sum()

    return Model(), x()


@twin("DP308")
def parameters_are_asked_for_with_a_way_out():
    """As in the transformers library."""

    class Model(Net):
        def forward(self, x):
            first = next(self.parameters(), None)
            return self.fc(x if first is None else x.to(first.dtype))

    return Model(), x()


@trigger("DP310", "the hook `keep` on `fc` runs 4 times")
def a_hook_keeps_features():
    model = Linear()
    features = {}

    def keep(module, args, output):
        features["fc"] = output

    model.fc.register_forward_hook(keep)
    return model, x()


@twin("DP310")
def hooks_of_pytorch_know_replicas():
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 3)), x()


@trigger("DP312", "cannot be deep-copied")
def a_layer_is_copied_in_forward():
    class Model(Net):
        def forward(self, x):
            return copy.deepcopy(self.fc)(x)

    return Model(), x()


@twin("DP312")
def a_layer_is_called_with_other_weights():
    class Model(Net):
        def forward(self, x):
            weights = {"weight": self.fc.weight * 2, "bias": self.fc.bias}
            return torch.func.functional_call(self.fc, weights, (x,))

    return Model(), x()


@trigger("DP314", "`fc.weight` (attribute tag)", "plain tensor")
def a_parameter_has_an_attribute():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.fc.weight.tag = 2.0

        def forward(self, x):
            return self.fc(x) * self.fc.weight.tag

    return Model(), x()


@twin("DP314")
def a_module_has_the_attribute():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.tag = 2.0
            self.fc.weight.unused = True

        def forward(self, x):
            return self.fc(x) * self.tag

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


@trigger("DP390", "replica 0 raises AssertionError: a whole batch")
def forward_insists_on_a_whole_batch():
    class Model(Net):
        def forward(self, x):
            assert len(x) != 2, "a whole batch"
            return self.fc(x)

    return Model(), x()


@twin("DP390")
def forward_takes_any_batch():
    class Model(Net):
        def forward(self, x):
            assert len(x), "a batch"
            return self.fc(x)

    return Model(), x()


SCALE = []


@trigger("DP391", "replica 1", "cuda:0")
def a_global_tensor_is_on_gpu_0():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) * SCALE[-1]

    SCALE.append(torch.ones(3, device="cuda:0"))
    return Model(), x()


@twin("DP391")
def a_global_tensor_is_moved():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) * SCALE[-1].to(x.device)

    SCALE.append(torch.ones(3, device="cuda:0"))
    return Model(), x()


# ---- DP4 gather ----


def returning(make):
    """A model whose forward returns make(y, x)."""

    class Model(Net):
        def forward(self, x):
            return make(self.fc(x), x)

    return Model()


@trigger("DP401", "one number on one GPU, and 4 here", also=["DP501"])
def a_mean_comes_back_as_a_vector():
    return returning(lambda y, _: y.square().mean()), x()


@trigger("DP401", "`[0]` is one number", also=["DP501"])
def a_loss_of_shape_1_comes_back_as_a_vector():
    return returning(lambda y, _: (y.square().mean()[None], y)), x()


@trigger("DP401", "cannot be gathered along dimension 1")
def a_mean_is_gathered_along_columns():
    class Model(Net):
        def forward(self, x):
            return self.fc(x.t()).mean()

    return nn.DataParallel(Model(), dim=1), torch.ones(4, 8)


@twin("DP401")
def means_are_taken_of_each_sample():
    return returning(lambda y, _: y.square().mean(1)), x()


@trigger("DP402", "`[1]` is of type int")
def a_number_is_returned():
    return returning(lambda y, _: (y, 3)), x()


@trigger("DP402", "`['size']` is of type Size")
def a_size_is_returned():
    return returning(lambda y, x: {"y": y, "size": x.shape}), x()


@trigger("DP402", "of type Batch")
def a_dataclass_is_returned():
    return returning(lambda y, _: Batch(y)), x()


@twin("DP402")
def a_number_is_returned_as_a_tensor():
    return returning(lambda y, _: (y, torch.full((len(y),), 3, device=y.device), None)), x()


@trigger("DP403", "`['names']` is the text 'a' and comes back as '<map object at")
def names_come_back_garbled():
    return returning(lambda y, _: {"y": y, "names": ["a", "b"]}), x()


@trigger("DP403", "`[0]['name']` is the text 'image 0'", also=["DP408"])
def names_of_images_come_back_garbled():
    return returning(lambda y, _: [{"y": row, "name": f"image {i}"} for i, row in enumerate(y)]), x()


@twin("DP403")
def names_stay_outside():
    return returning(lambda y, _: {"y": y}), x()


@trigger("DP404", "`[1]` is None in replica 0", "dropped")
def an_auxiliary_result_is_dropped():
    return returning(lambda y, x: (y, None if x.device.index == 0 else y)), x()


@trigger("DP404", "`[1]` is None in replica 2")
def an_auxiliary_result_is_missing():
    return returning(lambda y, x: (y, None if x.device.index == 2 else y)), x()


@twin("DP404")
def none_is_returned_by_all():
    return returning(lambda y, _: (y, None)), x()


@trigger("DP405", "replica 0 returns {y: Tensor(2d)}, replica 1 {y: Tensor(2d), aux: Tensor(2d)}")
def a_key_is_there_in_some_replicas():
    return returning(lambda y, x: {"y": y} if x.device.index == 0 else {"y": y, "aux": y}), x()


@trigger("DP405", "Tensor(3d)")
def a_dimension_is_there_in_some_replicas():
    return returning(lambda y, x: y if x.device.index == 0 else y[None]), x()


@twin("DP405")
def all_replicas_return_all_keys():
    return returning(lambda y, _: {"y": y, "aux": y}), x()


@trigger("DP406", "size 2, 3, 3 and 3 on dimension 1")
def results_are_padded_to_the_longest_of_a_chunk():
    return returning(lambda y, x: y[:, : 2 + (x.device.index > 0)]), x()


@twin("DP406")
def results_are_padded_alike():
    return returning(lambda y, _: y[:, :2]), x()


@trigger("DP407", "is on the CPU")
def a_result_is_moved_to_the_cpu():
    return returning(lambda y, _: y.cpu()), x()


@twin("DP407")
def a_result_stays_on_its_gpu():
    return returning(lambda y, _: y.relu()), x()


@trigger("DP408", "is a list of 8, one for each sample; from 2+2+2+2 it comes back with 2")
def boxes_of_images_are_merged():
    return returning(lambda y, _: [{"boxes": y[i : i + 1]} for i in range(len(y))]), x()


@trigger("DP408", "from 2+2+2+1 it cannot be joined")
def boxes_of_images_cannot_be_joined():
    return returning(lambda y, _: [y[i : i + 1] for i in range(len(y))]), x(7)


@twin("DP408")
def levels_of_a_pyramid_are_joined():
    return returning(lambda y, _: [y, y[:, :2], y[:, :1]]), x()


@trigger("DP409", "`[1]` of shape (1, 8, 5) has the batch on dimension 1", also=["DP590"])
def the_last_state_is_joined_along_its_layers():
    class Model(Recurrent):
        def forward(self, x):
            y, (h, _) = self.rnn(x)
            return y, h

    return Model(), steps()


@trigger("DP409", "shape (8,)", "joined along dimension 1")
def columns_are_summed_to_one_dimension():
    class Model(Net):
        def forward(self, x):
            return self.fc(x.t()).sum(1)

    return nn.DataParallel(Model(), dim=1), torch.ones(4, 8)


@twin("DP409")
def the_last_state_is_returned_batch_first():
    class Model(Recurrent):
        def forward(self, x):
            y, (h, _) = self.rnn(x)
            return y, h.transpose(0, 1)

    return Model(), steps()


@trigger("DP490", "the results cannot be gathered")
def sparse_results_cannot_be_joined():
    return returning(lambda y, _: y.to_sparse()), x()


@twin("DP490")
def columns_along_the_dimension_that_is_cut():
    class Model(Net):
        def forward(self, x):
            return self.fc(x.t()).t()

    return nn.DataParallel(Model(), dim=1), torch.ones(4, 8)


# ---- DP5 loss ----


class Classifier(Net):
    reduction = "mean"

    def forward(self, x, y):
        return functional.cross_entropy(self.fc(x), y, reduction=self.reduction)


@trigger("DP501", "loss.sum() are 4.00 times", also=["DP401"])
def a_loss_is_averaged_in_each_replica():
    return Classifier(), (x(), torch.arange(8) % 3)


@trigger("DP501", "some 2.97 times", "chunks of 3+3+2", also=["DP401"], gpus=3)
def a_loss_is_averaged_in_each_replica_over_uneven_chunks():
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


CALLS = []


@trigger("DP590", "differs from one GPU's")
def a_global_counter_scales_the_result():
    class Model(Net):
        def forward(self, x):
            CALLS.append(1)
            return self.fc(x) * len(CALLS)

    return Model(), x()


@trigger("DP590", "the result has another shape than on one GPU")
def a_mean_over_the_batch_is_one_for_each_gpu():
    return returning(lambda y, _: y.mean(0, keepdim=True)), x()


@trigger("DP590", "the result has another shape than on one GPU")
def a_sum_over_the_batch_behind_dropout_is_one_for_each_gpu():
    class Model(Net):
        def forward(self, x):
            return nn.functional.dropout(self.fc(x), 0.1, self.training).sum(0)

    return Model(), x()


@trigger("DP590", "the result has another shape than on one GPU", also=["DP306", "DP316"])
def a_sum_over_the_batch_behind_batchnorm_is_one_for_each_gpu():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), Summed()), x()


class Summed(nn.Module):
    def forward(self, x):
        return x.sum(0)


@trigger("DP590", "the result `[2]` has another shape than on one GPU")
def a_result_is_split_into_parts_of_two_rows():
    return returning(lambda y, _: y.split(2)), x(16)


@twin("DP590")
def gradients_are_infinite_on_one_gpu_too():
    return returning(lambda y, _: y.relu().sqrt() / 0), x()


@twin("DP590")
def nothing_global_scales_the_result():
    return Linear(), x()


# ---- DP6 threads ----


class Half(Head):
    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.net(x)


@trigger("DP601", "autocast('cuda') is bfloat16 around the call and float16 in replica 0")
def bfloat16_around_the_call_is_float16_inside():
    return Half(), x()


@trigger("DP601", "bfloat16 around the call and float16", autocast="bfloat16")
def bfloat16_around_a_model_is_float16_inside():
    return Linear(), x()


@trigger("DP601", "autocast('cpu') is bfloat16 around the call and off in replica 0")
def autocast_of_the_cpu_is_dropped():
    class Model(Head):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.net(x)

    return Model(), x()


@twin("DP601")
def autocast_stands_in_forward():
    class Model(Net):
        def forward(self, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return self.fc(x)

    return Model(), x()


@trigger("DP602", "inference_mode is true around the call and false in replicas")
def inference_mode_ends_at_the_replicas():
    class Model(Head):
        def forward(self, x):
            with torch.inference_mode():
                return self.net(x)

    return Model(), x()


@trigger("DP602", "default device is meta around the call and cpu in replicas")
def a_default_device_ends_at_the_replicas():
    class Model(Head):
        def forward(self, x):
            with torch.device("meta"):
                return self.net(x)

    return Model(), x()


@twin("DP602")
def no_grad_reaches_the_replicas():
    class Model(Head):
        def forward(self, x):
            with torch.no_grad():
                return self.net(x)

    return Model(), x()


@trigger("DP603", "draws random numbers")
def dropout_draws_on_each_gpu():
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout()), x()


@twin("DP603")
def without_dropout_nothing_is_drawn():
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)), x()


# ---- DP7 resources ----


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return (x[:, :1] * self.scale).expand(-1, 2**16).contiguous()


@trigger("DP701", "GPU 0 holds up to")
def wide_results_are_gathered_on_gpu_0():
    return Wide(), x(16)


@twin("DP701")
def small_results_are_gathered_on_gpu_0():
    class Model(Wide):
        def forward(self, x):
            return super().forward(x).mean(1)

    return Model(), x(16)
