"""Pitfalls whose repair is not at the line that shows them: in a method, an object, or around the call."""

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from casetable import Net, Recurrent, steps, trigger, twin, x
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Box:
    def __init__(self, corner):
        self.corner = corner

    def moved(self, fn):
        return Box(fn(self.corner))

    def clipped(self, points):
        return torch.minimum(points, self.corner)


@trigger("DP302", "`box` is a tensor of shape (4,)", "as `corner` of a Box")
def an_object_is_moved_by_a_function_that_it_is_given():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.box = Box(torch.ones(4))

        def _apply(self, fn, *args):
            super()._apply(fn, *args)
            self.box = self.box.moved(fn)
            return self

        def forward(self, x):
            return self.fc(self.box.clipped(x))

    return Model(), x()


class Scaler:
    __slots__ = ("mean",)

    def __init__(self, mean):
        self.mean = mean

    def centred(self, x):
        return x - self.mean


class Steps:
    def __init__(self, scaler):
        self.scaler = scaler


@trigger("DP302", "`steps` is a tensor of shape (4,)", "as `mean` of a Scaler")
def an_object_with_slots_is_in_another_object():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.steps = Steps(Scaler(torch.zeros(4)))

        def _apply(self, fn, *args):
            super()._apply(fn, *args)
            self.steps.scaler.mean = fn(self.steps.scaler.mean)
            return self

        def forward(self, x):
            return self.fc(self.steps.scaler.centred(x))

    return Model(), x()


@twin("DP302")
def an_object_with_slots_is_moved_where_it_is_used():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scaler = Scaler(torch.zeros(4))

        def forward(self, x):
            return self.fc(Scaler(self.scaler.mean.to(x.device)).centred(x))

    return Model(), x()


@trigger("DP302", "`prototypes` is a tensor of shape (3, 3)")
def tensors_stay_on_the_cpu_so_that_the_model_runs_on_no_gpu():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.prototypes = {"far": torch.eye(3), "near": torch.eye(3) / 2}

        def forward(self, x):
            return self.fc(x) @ self.prototypes["near"]

    return Model(), x()


@trigger("DP303", "as_tensor to cuda:0")
def a_tensor_is_taken_to_the_gpu_that_the_model_was_made_for():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.device = torch.device("cuda:0")

        def own(self, value):
            return torch.as_tensor(value, device=self.device)

        def forward(self, x):
            return self.fc(self.own(x))

    return Model(), x()


@twin("DP303")
def a_tensor_is_taken_to_where_it_is():
    class Model(Net):
        def forward(self, x):
            return self.fc(torch.as_tensor(x, device=x.device)) + torch.zeros_like(x[:, :3])

    return Model(), x()


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rates", torch.ones(2))
        self.known = {}

    def forward(self, length):
        if length not in self.known:
            self.known[length] = torch.arange(length, device=self.rates.device)[:, None] * self.rates
        return self.known[length]


@trigger("DP309", "`tables.known` is written by all replicas at once")
def tables_are_kept_by_their_length_alone():
    class Model(Recurrent):
        def __init__(self):
            super().__init__()
            self.tables = Tables()

        def forward(self, x):
            return self.rnn(x)[0] + self.tables(x.size(1)).sum(1, keepdim=True)

    return Model(), steps()


@trigger("DP304", "`chosen` is the bound method _near")
def a_method_is_chosen_of_a_table_that_is_zipped():
    class Model(Net):
        def __init__(self, kind="near"):
            super().__init__()
            table = dict(zip(("near", "far"), (self._near, self._far), strict=True))
            self.chosen = table[kind]

        def _near(self, y):
            return y @ self.fc.weight

        def _far(self, y):
            return -y @ self.fc.weight

        def forward(self, x):
            return self.chosen(self.fc(x))

    return Model(), x()


class Counted:
    def begin(self):
        self.step = 0

    def advance(self):
        if self.training:
            self.step += 1
        return 1 + self.step


@trigger("DP301", "`step` goes from 0 to 1")
def a_mixin_counts_what_another_method_of_it_has_set():
    class Model(Counted, nn.Module):
        def __init__(self):
            nn.Module.__init__(self)
            self.begin()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(x) / self.advance()

    return Model(), x()


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.table.weight.requires_grad_(False)

    @torch.no_grad()
    def follow(self, y, nearest):
        weight = self.table.weight.data
        chosen = functional.one_hot(nearest, 5).to(y.dtype)
        weight.add_(0.1 * (chosen.t() @ y))

    def forward(self, y):
        nearest = torch.cdist(y, self.table.weight).argmin(1)
        code = self.table(nearest)
        if self.training:
            self.follow(y.detach(), nearest)
        return y + (code - y).detach()


@trigger("DP313", "`codes.table.weight`")
def a_part_moves_its_codes_by_a_method_of_its_own():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.codes = Codes()

        def forward(self, x):
            return self.codes(self.fc(x))

    return Model(), x()


@trigger("DP406", "the result's `['scores']` has size", "sizes of `['tokens']` differ too")
def words_are_written_until_the_longest_of_the_chunk():
    class Model(Net):
        def forward(self, x, lengths):
            alive = torch.arange(int(lengths.max()), device=x.device) < lengths[:, None]
            return {"scores": self.fc(x).sum(1, keepdim=True) * alive, "tokens": lengths[:, None] * alive}

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows) % 5 + 1)


class Unpacking(Recurrent):
    def packed(self, x, lengths):
        return pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)

    def unpacked(self, packed, longest):
        return pad_packed_sequence(packed, batch_first=True)[0]

    def forward(self, x, lengths):
        return self.unpacked(self.rnn(self.packed(x, lengths))[0], x.size(1))


@trigger("DP214", "without total_length")
def sequences_are_padded_by_a_method_that_knows_their_length():
    return Unpacking(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


class State(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor


@trigger("DP212", "`state.h` and `state.c`")
def a_state_is_a_named_tuple():
    class Model(Recurrent):
        def forward(self, x, state):
            y, (h, c) = self.rnn(x, (state.h, state.c))
            state = State(h, c)
            return y, state

    return Model(), lambda rows: (steps(rows), State(torch.zeros(1, rows, 5), torch.zeros(1, rows, 5)))


class Grid:
    def __init__(self):
        self.places = torch.arange(3.0)

    def added_to(self, y):
        return y + self.places


class Following(nn.Module):
    """Takes along what its parts of one class have, whatever they are called."""

    def _apply(self, fn, *args):
        super()._apply(fn, *args)
        for one in vars(self).values():
            if isinstance(one, Grid):
                one.places = fn(one.places)
        return self


@trigger("DP302", "`first` and `second` are tensors")
def two_objects_are_used_by_another_method_of_their_class():
    class Model(Following):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.first, self.second = Grid(), Grid()

        def placed(self, y, which):
            return getattr(self, which).added_to(y)

        def forward(self, x):
            return self.placed(self.fc(x), "first") + self.placed(self.fc(x), "second")

    return Model(), x()


def joined_functions(*functions):
    def run(y):
        for one in functions:
            y = one(y)
        return y

    return run


def around(centre):
    def distance(y):
        return (y - centre).square()

    return distance


@trigger("DP302", "a function that holds a tensor of shape (3,)")
def a_function_has_a_tensor_by_way_of_another_function():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.distance = joined_functions(torch.relu, around(torch.zeros(3, device="cuda:0")))

        def forward(self, x):
            return self.distance(self.fc(x))

    return Model(), x()


@trigger("DP304", "`mix` is a function that holds `Model`")
def a_method_of_a_table_is_given_a_setting():
    class Model(Net):
        def __init__(self, kind="near", scale=2.0):
            super().__init__()
            table = {name: getattr(self, f"_{name}") for name in ("near", "far")}
            self.mix = functools.partial(table[kind], scale=scale)

        def _near(self, y, scale):
            return scale * (y @ self.fc.weight)

        def _far(self, y, scale):
            return -scale * (y @ self.fc.weight)

        def forward(self, x):
            return self.mix(self.fc(x))

    return Model(), x()


class Typed:
    @property
    def dtype(self):
        return next(self.parameters()).dtype


class Inner(Typed, nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(3, 3)

    def forward(self, y):
        return self.scale(y.to(self.dtype))


@trigger("DP308", "`Inner.parameters()` is empty in replicas")
def a_mixin_of_a_part_asks_for_its_type():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(self.fc(x))

    return Model(), x()


class Averaged:
    @staticmethod
    def pairs(one, other):
        return zip(one.parameters(), other.parameters(), strict=True)

    @torch.no_grad()
    def follow(self):
        for own, other in self.pairs(self.online, self.target):
            other.data.lerp_(own.data, 0.1)


@trigger("DP308", "parameters()` is empty in replicas")
def a_target_follows_pair_by_pair():
    class Model(Averaged, nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.target = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            if self.training:
                self.follow()
            return self.online(x) - self.target(x).detach()

    return Model(), x()


@trigger("DP390", "replica 0 raises RuntimeError")
def a_grid_is_made_for_a_whole_batch():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("grid", torch.ones(8, 3, 2))

        def placed(self, y):
            return torch.bmm(y[:, None], self.grid)

        def forward(self, x):
            return self.placed(self.fc(x))

    return Model(), x()


@trigger("DP501", "each replica's number stands for another count", also=["DP401"])
def words_that_count_are_averaged_in_a_method_of_a_part():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(3, 5)

        def losses(self, y, labels):
            logits = self.out(y)
            return {"loss": functional.cross_entropy(logits, labels, ignore_index=4)}

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.head = Head()

        def forward(self, x, labels):
            return self.head.losses(self.fc(x), labels)

    return Model(), (x(), torch.tensor([0, 4, 4, 1, 2, 3, 0, 1]))


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("means", torch.zeros(3))

    @torch.no_grad()
    def update(self, y):
        self.means.copy_(0.9 * self.means + 0.1 * y.mean(0))


class Remembering(Net):
    def __init__(self):
        super().__init__()
        self.memory = Memory()

    def behind(self, y):
        pass

    def forward(self, x):
        y = self.fc(x)
        self.behind(y.detach())
        return y


class RememberingOnline(Remembering):
    def behind(self, y):
        if self.training:
            self.memory.update(y)


@trigger("DP305", "the buffer `memory.means`")
def a_class_of_ones_own_updates_a_part_behind_forward():
    return RememberingOnline(), x()


class Taps(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.kept = net, {}
        for name in ("0", "1"):
            net.get_submodule(name).register_forward_hook(functools.partial(self._keep, name))

    def _keep(self, name, module, given, output):
        self.kept[name] = output

    def forward(self, x):
        self.kept.clear()
        self.net(x)
        return [self.kept[name] for name in ("0", "1")]


@trigger("DP309", "`kept` is written by all replicas at once", also=["DP310"])
def what_hooks_fill_is_emptied_before_each_call():
    return Taps(nn.Sequential(nn.Linear(4, 3), nn.ReLU())), x()


class Tape(threading.local):
    def __init__(self):
        self.open = []

    def note(self, name, value):
        if self.open:
            self.open[-1][name] = value


TAPE = Tape()


def to_the_tape(name, module, given, output):
    TAPE.note(name, output)


def normed(module, given, output):
    return output * (output.square().mean(1, keepdim=True) + 1e-8).rsqrt()


@twin("DP310", also=["DP310"])
def hooks_write_to_what_each_thread_has_for_itself():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    model[0].register_forward_hook(functools.partial(to_the_tape, "first"))
    model[1].register_forward_hook(normed)
    return model, x()


@trigger("DP402", "the result is of type Spread, which gather cannot join")
def a_result_is_made_again_of_the_class_that_a_part_returns():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.spread = Spreading()

        def forward(self, x):
            out = self.spread(self.fc(x))
            return type(out)(out.mean + 1, out.width)

    return Model(), x()


@dataclass
class Spread:
    mean: torch.Tensor
    width: torch.Tensor


class Spreading(nn.Module):
    def forward(self, y):
        return Spread(y, y.exp())


class Losses(Net):
    def forward(self, x):
        return self.fc(x)


@trigger("DP502", "depends on the others of its batch")
def a_loss_is_taken_of_what_the_base_class_gives():
    class Model(Losses):
        def forward(self, x):
            y = super().forward(x)
            return {"scores": y, "spread": (y - y.mean(0)).square().sum(1)}

    return Model(), x()


class Tapping:
    def __init__(self, names):
        self.names = names

    def attach(self, net, kept):
        for name in self.names:
            net.get_submodule(name).register_forward_hook(functools.partial(self.keep, kept, name))

    @staticmethod
    def keep(kept, name, module, given, output):
        kept[name] = output


@trigger("DP309", "`features` is written by all replicas at once", also=["DP310"])
def a_dict_is_handed_on_to_hooks_by_an_object():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.features = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), {}
            Tapping(["0", "1"]).attach(self.net, self.features)

        def forward(self, x):
            self.net(x)
            return self.features["0"] + self.features["1"]

    return Model(), x()


class Schedule(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def advance(self):
        self.calls += 1


class Scheduled(nn.Module):
    def __init__(self, schedule):
        super().__init__()
        self.fc, self.schedule = nn.Linear(4, 3), schedule

    def forward(self, x):
        return self.fc(x) / (1 + self.schedule.calls)


@trigger("DP301", "`schedule.calls` goes from 0 to 1")
def a_count_is_raised_before_another_part_reads_it():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.schedule = Schedule()
            self.part = Scheduled(self.schedule)

        def forward(self, x):
            if self.training:
                self.schedule.advance()
            return self.part(x)

    return Model(), x()


@trigger("DP402", "are of type Size and int, which gather cannot join")
def sizes_lie_in_an_ordered_dict_that_is_filled_bit_by_bit():
    class Model(Net):
        def named(self, result, x):
            result["about"] = {"size": x.shape[-1:], "classes": result["out"].shape[1]}
            return result

        def forward(self, x):
            result = OrderedDict()
            result["out"] = self.fc(x)
            return self.named(result, x)

    return Model(), x()
