"""Pitfalls that are found by what calls do, however the code is written: DP309, DP502, DP602, and others."""

import contextvars
import enum
import threading
from collections import OrderedDict

import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.distributions import Independent, Normal
from torch.nn import functional


class Stack:
    def __init__(self, name):
        self.items, self.name = [], name

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


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        stack = Stack("skips")
        self.down, self.up = Down(stack), Up(stack)

    def forward(self, x):
        return self.up(self.down(x))


@trigger("DP309", "`down.stack` and `up.stack` are one object, which is filled and emptied by all replicas")
def two_parts_hand_each_other_on_a_stack():
    return Pair(), x()


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


@trigger("DP603", "forward seeds a generator itself")
def noise_is_drawn_by_a_seed_of_its_own():
    class Model(Net):
        def forward(self, x):
            generator = torch.Generator().manual_seed(3)
            return self.fc(x + torch.randn(x.shape, generator=generator).to(x.device))

    return Model(), x()


class Backend(enum.Enum):
    PLAIN = "plain"
    TWICE = "twice"


BACKEND = contextvars.ContextVar("backend", default=Backend.PLAIN)


@trigger("DP602", "`BACKEND`, a ContextVar('backend'), has <Backend.TWICE", "not in replicas' threads")
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


class Settings(threading.local):
    def __init__(self):
        self.factor = 1.0


SETTINGS = Settings()


@trigger("DP602", "`SETTINGS`, a threading.local(), has factor=2.0 around the call")
def a_setting_of_this_thread_has_its_default_in_replicas():
    SETTINGS.factor = 2.0

    class Model(Net):
        def forward(self, x):
            return self.fc(x) * SETTINGS.factor

    return Model(), x()


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


@trigger("DP313", "`first` and `second` have a max_norm, by which forward shortens rows of their parameters")
def embeddings_have_a_longest_norm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Embedding(9, 4, max_norm=0.5) for _ in range(2))
            self.head = nn.Linear(8, 2)

        def forward(self, ids):
            return self.head(torch.cat([self.first(ids), self.second(ids)], 1))

    return Model(), lambda rows: (torch.arange(rows) % 9,)


@twin("DP313")
def looked_up_rows_are_shortened():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, ids):
            rows = self.table(ids)
            return self.head(rows / rows.norm(dim=-1, keepdim=True).clamp(min=0.5))

    return Model(), lambda rows: (torch.arange(rows) % 9,)


class Monitor:
    def __init__(self):
        self.history = []

    def observe(self, value):
        self.history.append(value)


@trigger("DP309", "`monitor` is written by all replicas at once: a Monitor (history=a list of 1)")
def an_object_logs_a_number_that_a_layer_gives():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.drift, self.monitor = nn.Linear(4, 1), Monitor()

        def forward(self, x):
            self.monitor.observe(self.drift(x.detach()).mean().item())
            return self.fc(x)

    return Model(), lambda rows: (torch.randn(rows, 4),)


class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.seen = nn.Linear(4, 4), None

    def forward(self, x):
        y = self.fc(x).softmax(-1)
        self.seen = y.detach()
        return x + y


@trigger(
    "DP301", "`blocks.0.seen` goes from None to a tensor", "where `rollout` reads it (and 1 more like it)"
)
def maps_of_blocks_are_read_in_a_loop_after_the_call():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(Maps(), Maps())

        def forward(self, x):
            return self.blocks(x)

        def rollout(self):
            return sum(block.seen for block in self.blocks)

    return Model(), lambda rows: (torch.randn(rows, 4),)


class Moved(nn.Module):
    names = ()

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        for name in self.names:
            setattr(self, name, fn(getattr(self, name)))
        return self


class Fourier(Moved):
    names = ("waves",)

    def __init__(self):
        super().__init__()
        self.waves = torch.ones(4, 6)

    def forward(self, x):
        return (x @ self.waves).sin()


@trigger("DP302", "`waves.waves` is a tensor of shape (4, 6) on cpu, moved with the model")
def a_base_class_moves_tensors_by_their_names():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.waves, self.head = Fourier(), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.waves(x))

    return Model(), x()


def without_empty_columns(ids):
    used = ids.ne(0).any(dim=0)
    return ids[:, used]


@trigger("DP406", "on dimension 1")
def a_helper_drops_columns_that_are_empty_in_a_chunk():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 4, padding_idx=0)

        def forward(self, ids):
            ids = without_empty_columns(ids)
            return self.words(ids)

    def batch(rows):
        return (torch.arange(8) < 1 + torch.arange(rows)[:, None] * 8 // rows).long() * 3

    return Model(), batch


@trigger("DP502", "depends on the others of its batch")
def a_layer_in_a_sequential_takes_the_deviation_of_the_batch():
    class Deviation(nn.Module):
        def forward(self, h):
            spread = torch.sqrt(h.var(0, unbiased=False) + 1e-8).mean()
            return torch.cat([h, spread.expand(len(h), 1)], 1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.main = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Deviation(), nn.Linear(5, 3))
            self.score = nn.Linear(3, 1)

        def forward(self, x):
            return self.score(self.main(x).relu()).view(-1)

    return Model(), x()


class NotFiniteError(RuntimeError):
    pass


@twin("DP310", also=["DP310"])
def a_hook_raises_an_error_of_its_own():
    def guard(module, given, output):
        if not torch.isfinite(output).all():
            raise NotFiniteError(f"{type(module).__name__} is not finite")

    model = Plain()
    model.fc.register_forward_hook(guard)
    return model, x()


class Post(nn.Module):
    def forward(self, scores, boxes):
        found = []
        for s, b in zip(scores, boxes, strict=True):
            keep = s >= s.max()
            found.append({"scores": s[keep], "boxes": b[keep], "first": b[0]})
        return found


@trigger("DP408", "is a list of 8, one for each sample")
def a_part_returns_a_dict_for_each_image():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.boxes, self.post = nn.Linear(4, 12), Post()

        def forward(self, x):
            return self.post(self.fc(x), self.boxes(x).view(len(x), 3, 4))

    return Model(), x()


@trigger("DP205", "`ids` has", "and the batch 32")
def ids_of_all_samples_lie_in_one_tensor_with_offsets():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.bags, self.head = nn.EmbeddingBag(9, 3, mode="sum"), nn.Linear(6, 1)

        def forward(self, x, ids, offsets):
            bag = self.bags(ids, offsets)
            return self.head(torch.cat([self.fc(x), bag], 1))

    def batch(rows):
        sizes = 1 + torch.arange(rows) % 3
        return torch.randn(rows, 4), torch.arange(int(sizes.sum())) % 9, sizes.cumsum(0) - sizes

    return Model(), batch


class Followed(Net):
    """Follows its data in training, as codebooks and normalisers do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.mean.lerp_(y.detach().mean(0), 0.1)
        return y - self.mean


@trigger("DP305", "the buffer `mean` ends as")
def a_buffer_follows_the_data_in_training():
    return Followed(), x()


@twin("DP305", also=["DP305"])
def a_model_that_follows_its_data_is_given_in_evaluation():
    return Followed().eval(), x()


class Distances:
    """Makes a table once for a length."""

    def start(self):
        self.tables = {}

    def key(self, length, device):
        return length

    def table(self, length, device):
        key = self.key(length, device)
        if key not in self.tables:
            self.tables[key] = torch.arange(length, device=device).float()
        return self.tables[key]


@trigger("DP309", "`tables` is written by all replicas at once")
def a_mixin_keeps_tables_by_a_key_of_another_method():
    class Model(Distances, Net):
        def __init__(self):
            super().__init__()
            self.start()

        def forward(self, x):
            return self.fc(x) + self.table(3, x.device)

    return Model(), x()


class Leaving(nn.Module):
    """Leaves what its layers give in a list, which it empties first."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.left = []

    def forward(self, x):
        del self.left[:]
        for layer in self.layers:
            x = layer(x).relu()
            self.left.append(x)
        return x


@trigger("DP309", "`encoder.left` is written by all replicas at once")
def a_list_of_a_part_is_emptied_filled_and_read_by_the_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = Leaving(), nn.Linear(4, 2)

        def forward(self, x):
            y = self.encoder(x)
            return self.head(y + sum(self.encoder.left))

    return Model(), x()


def keeping(store, name):
    def hook(module, given, output):
        store[name] = output.detach()

    return hook


@trigger("DP310", "the hook `hook` on `fc` runs 4 times a call", also=["DP309"])
def a_hook_that_a_function_makes_fills_a_dict_of_the_model():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.taken = {}
            self.fc.register_forward_hook(keeping(self.taken, "fc"))

        def forward(self, x):
            return self.fc(x).relu()

        def heat(self):
            return self.taken["fc"].mean(1)

    return Model(), x()


@trigger("DP212", "`state['c']` and `state['h']` have the batch on dimension 1")
def states_come_in_a_dict_and_go_out_in_one():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True)

        def forward(self, x, state):
            self.rnn.flatten_parameters()
            y, (h, c) = self.rnn(x, (state["h"], state["c"]))
            return y, {"h": h, "c": c}

    def batch(rows):
        return torch.randn(rows, 6, 4), {key: torch.zeros(2, rows, 5) for key in ("c", "h")}

    return Model(), batch


def with_spread(h, group=4):
    grouped = h.view(min(group, len(h)), -1, h.size(1))
    spread = (grouped - grouped.mean(dim=0, keepdim=True)).square().mean(dim=0).add(1e-6).sqrt()
    return torch.cat([h, spread.mean(dim=1, keepdim=True).repeat(len(grouped), 1)], dim=1)


@trigger("DP502", "depends on the others of its batch")
def a_layer_is_given_what_a_helper_mixes():
    class Model(Net):
        stat = staticmethod(with_spread)

        def __init__(self):
            super().__init__()
            self.last, self.out = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            h = self.fc(x).relu()
            h = self.last(self.stat(h)).relu()
            return self.out(h).squeeze(1)

    return Model(), x()


@twin("DP216", also=["DP203"])
def each_word_is_looked_up_by_itself_and_a_flag_comes_by_keyword():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, ids, hidden=False):
            h = self.words(ids)
            return (self.out(h), h) if hidden else self.out(h)

    return Model(), lambda rows: ((torch.arange(rows * 6).view(rows, 6) % 9,), {"hidden": True})
