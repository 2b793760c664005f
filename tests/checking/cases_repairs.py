"""Pitfalls whose repair is not at the line that shows them: in a method, an object, or around the call."""

import functools
import threading

import torch
from casetable import Net, Recurrent, steps, trigger, twin, x
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Scaler:
    __slots__ = ("mean",)

    def __init__(self, mean):
        self.mean = mean

    def centred(self, x):
        return x - self.mean


@twin("DP302")
class AnObjectWithSlotsIsMovedWhereItIsUsed(Net):
    def __init__(self):
        super().__init__()
        self.scaler = Scaler(torch.zeros(4))

    def forward(self, x):
        return self.fc(Scaler(self.scaler.mean.to(x.device)).centred(x))


@twin("DP303")
class ATensorIsTakenToWhereItIs(Net):
    def forward(self, x):
        return self.fc(torch.as_tensor(x, device=x.device)) + torch.zeros_like(x[:, :3])


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


class Trimming(Unpacking):
    """Neither packs nor unpacks, though the class that it inherits from does."""

    def packed(self, x, lengths):
        return x[:, : int(lengths.max())]

    def unpacked(self, packed, longest):
        return packed


@trigger("DP406", "has size 6, 5, 4 and 2 on dimension 1")
def sequences_are_trimmed_by_methods_that_pack_in_the_class_above():
    return Trimming(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


def around(centre):
    def distance(y):
        return (y - centre).square()

    return distance


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
class ADictIsHandedOnToHooksByAnObject(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.features = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), {}
        Tapping(["0", "1"]).attach(self.net, self.features)

    def forward(self, x):
        self.net(x)
        return self.features["0"] + self.features["1"]
