"""Pitfalls that are found by what calls do, however the code is written: DP309, DP502, DP602, and others."""

import contextvars
import enum
from collections import OrderedDict

import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.distributions import Independent, Normal
from torch.nn import functional


class Stack:
    def __init__(self):
        self.items = []

    def push(self, value):
        self.items.append(value)
        return value

    def pop(self):
        return self.items.pop()


class Down(nn.Module):
    def __init__(self, stack):
        super().__init__()
        self.fc, self.stack = nn.Linear(4, 4), stack

    def forward(self, x):
        return self.fc(self.stack.push(x.relu()))


class Up(nn.Module):
    def __init__(self, stack):
        super().__init__()
        self.fc, self.stack = nn.Linear(4, 4), stack

    def forward(self, x):
        return self.fc(x) + self.stack.pop()


@trigger("DP309", "`down.stack` and `up.stack` are one object, which is filled and emptied by all replicas")
def two_parts_hand_each_other_on_a_stack():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            stack = Stack()
            self.down, self.up = Down(stack), Up(stack)

        def forward(self, x):
            return self.up(self.down(x))

    return Model(), x()


@twin("DP309")
def what_is_handed_on_lies_by_the_gpu():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.head, self.kept = nn.Linear(3, 3), {}

        def forward(self, x):
            self.kept[x.device] = x
            y = self.head(self.fc(x))
            return y + self.kept.pop(x.device).sum(1, keepdim=True)

    return Model(), x()


class Encoder(nn.Module):
    def __init__(self, ends):
        super().__init__()
        self.fc, self.ends = nn.Linear(4, 4), ends

    def forward(self, x):
        self.ends["first"] = self.fc(x)
        return self.ends["first"].relu()


class Decoder(nn.Module):
    def __init__(self, ends):
        super().__init__()
        self.fc, self.ends = nn.Linear(4, 4), ends

    def forward(self, x):
        return self.fc(x) + self.ends["first"]


@trigger(
    "DP309", "`encoder.ends` and `decoder.ends` are one object, which is written by all replicas at once"
)
def two_parts_have_one_dict():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            ends = OrderedDict()
            self.encoder, self.decoder = Encoder(ends), Decoder(ends)

        def forward(self, x):
            return self.decoder(self.encoder(x))

    return Model(), x()


@trigger("DP309", "`steps` is written by all replicas at once")
def a_list_is_emptied_by_a_slice_and_filled_again():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.steps = []

        def forward(self, x):
            del self.steps[:]
            for scale in (1.0, 0.5):
                self.steps += [self.fc(x * scale)]
            return torch.cat(self.steps, 1)

    return Model(), x()


@trigger("DP310", "the hook `hook` on `fc` runs 4 times a call", also=["DP309"])
def a_hook_fills_a_dict_by_another_name_and_forward_goes_through_it():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.kept = {}
            self.fc.register_forward_hook(self.tap("fc"))

        def tap(self, name):
            store = self.kept

            def hook(module, given, output):
                store[name] = output

            return hook

        def forward(self, x):
            return self.fc(x) + sum(self.kept[name].relu() for name in sorted(self.kept))

    return Model(), x()


class Pairs(nn.Module):
    """Relates all samples, in words that nothing else has."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, one, other):
        logits = torch.einsum("id,jd->ij", one, other) * self.scale
        return functional.cross_entropy(logits, torch.arange(len(one), device=one.device), reduction="none")


@trigger("DP502", "depends on the others of its batch")
def a_part_with_a_parameter_compares_all_pairs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item, self.task = nn.Linear(4, 3), nn.Linear(4, 3), Pairs()

        def forward(self, user, item):
            u, v = self.user(user), self.item(item)
            return self.task(u, v)

    return Model(), lambda rows: (torch.randn(rows, 4), torch.randn(rows, 4))


def normalised(h, dims):
    return (h - h.mean(dim=dims, keepdim=True)) * torch.rsqrt(h.var(dim=dims, keepdim=True) + 1e-3)


@trigger("DP502", "depends on the others of its batch")
def features_are_normalised_over_dimensions_of_a_variable_before_most_layers():
    class Model(nn.Module):
        over = (0, 1)

        def __init__(self):
            super().__init__()
            self.register_buffer("filters", torch.rand(4, 4))
            self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

        def forward(self, wave):
            h = normalised(wave @ self.filters, self.over)
            return self.body(h)

    return Model(), x()


@trigger("DP501", "gradients of loss.mean() are")
def a_loss_of_valid_pixels_stands_beside_the_prediction():
    class Model(Net):
        @staticmethod
        def criterion(pred, gt):
            valid = gt > 0
            return (pred[valid] - gt[valid]).abs().mean()

        def forward(self, x, gt):
            pred = self.fc(torch.cat((x[:, :2], x[:, 2:] / 2.0), 1))
            return pred, self.criterion(pred, gt).unsqueeze(0)

    def batch(rows):
        keep = torch.arange(3) <= torch.arange(rows)[:, None] % 3 * torch.arange(rows)[:, None] // 4
        return torch.randn(rows, 4), torch.rand(rows, 3) * keep

    return Model(), batch


class Backend(enum.Enum):
    PLAIN = "plain"
    TWICE = "twice"


BACKEND = contextvars.ContextVar("backend", default=Backend.PLAIN)


@trigger("DP602", "ContextVar('backend') is <Backend.TWICE", "not set in replicas")
def a_variable_of_the_context_is_not_set_in_replicas():
    BACKEND.set(Backend.TWICE)

    class Model(Net):
        def forward(self, x):
            y = self.fc(x)
            return y * 2 if BACKEND.get() is Backend.TWICE else y

    return Model(), x()


@twin("DP602")
def a_variable_of_the_context_is_not_asked_for():
    BACKEND.set(Backend.TWICE)
    return Plain(), x()


class Plain(Net):
    def forward(self, x):
        return self.fc(x)


class AutocastParallel(nn.DataParallel):
    def forward(self, *inputs, **kwargs):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return super().forward(*inputs, **kwargs)


class Scaled(Net):
    def forward(self, x):
        return self.fc(x) * 3


@trigger("DP601", "autocast('cuda') is bfloat16 around the call and float16 in replica 0")
def a_wrapper_of_the_users_opens_autocast():
    return AutocastParallel(Scaled().to("cuda:0")), x()


class Policy(Net):
    """Gives a distribution, which gather cannot join."""

    def __init__(self):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(1, 3))

    def forward(self, obs):
        mu = self.fc(obs)
        return Independent(Normal(mu, self.log_std.expand_as(mu).exp()), 1)


@trigger("DP402", "`[0]` is of type Independent")
def a_part_returns_a_distribution():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = Policy(), nn.Linear(4, 1)

        def forward(self, obs):
            return self.actor(obs), self.critic(obs).squeeze(-1)

    return Model(), x()


@trigger("DP405", "replica 0 returns {a: Tensor(2d)}")
def tasks_that_are_in_a_chunk_have_keys():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({name: nn.Linear(4, 1) for name in "abc"})

        def forward(self, x, task):
            found = {}
            for index, name in enumerate(self.heads):
                rows = (task == index).nonzero().squeeze(1)
                if rows.numel():
                    found[name] = self.heads[name](x.index_select(0, rows))
            return found

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows) * 3 // rows)


def trimmed(frames, lengths):
    return frames[:, : int(lengths.max())]


@trigger("DP406", "has size 8, 6, 4 and 2 on dimension 1")
def a_helper_cuts_off_what_no_sample_of_a_chunk_has():
    class Model(Net):
        def prepare(self, frames, lengths):
            return trimmed(frames, lengths)

        def forward(self, frames, lengths):
            frames = self.prepare(frames, lengths)
            keep = torch.arange(frames.size(1), device=frames.device) < lengths[:, None]
            return self.fc(frames * keep.unsqueeze(-1))

    def batch(rows):
        return torch.randn(rows, 8, 4), 8 - torch.arange(rows) * 4 // rows * 2

    return Model(), batch


class Images:
    """Images of several sizes in one tensor, as detectors take them."""

    def __init__(self, tensor, sizes):
        self.tensor, self.sizes = tensor, sizes


@trigger("DP208", "`images` is a Images that holds tensor")
def an_object_holds_a_list_with_a_size_for_each_sample():
    class Model(Net):
        def forward(self, images):
            pixels = images.tensor.to(self.fc.weight.device)
            return self.fc(pixels), torch.tensor(images.sizes, device=pixels.device)

    return Model(), lambda rows: (Images(torch.randn(rows, 4), [(index, 3) for index in range(rows)]),)


@trigger("DP212", "`state['c']` and `state['h']` have the batch on dimension 1")
def states_come_in_a_dict():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True)

        def forward(self, x, state):
            self.rnn.flatten_parameters()
            return self.rnn(x, (state["h"], state["c"]))[0]

    def batch(rows):
        return torch.randn(rows, 6, 4), {key: torch.randn(2, rows, 5) for key in ("c", "h")}

    return Model(), batch


@trigger("DP212", "`hx` has the batch on dimension 1")
def a_state_goes_through_a_method_in_one_line():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 5, num_layers=2, batch_first=True)

        def encode(self, x, hx):
            self.rnn.flatten_parameters()
            return self.rnn(x, hx)

        def forward(self, x, hx=None):
            return self.encode(x, hx)

    return Model(), lambda rows: (torch.randn(rows, 6, 4), torch.zeros(2, rows, 5))


@trigger("DP304", "`readout` is the bound method")
def a_method_is_chosen_from_a_table_at_construction():
    class Model(Net):
        def __init__(self, readout="gated"):
            super().__init__()
            self.gate = nn.Linear(3, 1)
            table = {"plain": self.plain, "gated": self.gated}
            self.readout = table[readout]

        def plain(self, h):
            return h.sum(1)

        def gated(self, h):
            return self.gate(h).sigmoid() * h

        def forward(self, x):
            return self.readout(self.fc(x))

    return Model(), x()


@trigger("DP301", "`middle` goes from absent to a tensor of shape (8, 3)")
def rows_are_left_on_the_model_for_whoever_wants_them():
    class Model(Net):
        def forward(self, x):
            h = self.fc(x)
            self.middle = h
            return h.relu()

    return Model(), x()


@twin("DP301", also=["DP301"])
def rows_on_the_model_are_scratch_space():
    class Model(Net):
        def forward(self, x):
            self.scratch = self.fc(x)
            return self.scratch.relu()

    return Model(), x()
