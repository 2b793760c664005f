"""Pitfalls as programs have them: in a helper, in a module without parameters, in an object."""

import copy
import functools
import threading

import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@trigger("DP308", "`Model.parameters()` is empty", "expected a non-empty list")
def all_parameters_are_joined():
    class Model(Net):
        def forward(self, x):
            every = torch.cat([one.reshape(-1) for one in self.parameters()])
            return self.fc(x) * every.norm()

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty", "empty sequence")
def the_largest_parameter_is_looked_for():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) / max(one.abs().max() for one in self.parameters())

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty", "list index out of range")
def the_first_of_a_list_of_parameters_is_taken():
    class Model(Net):
        def forward(self, x):
            return self.fc(x.to(list(self.parameters())[0].dtype))  # noqa: RUF015 - as people write it

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty", "KeyError: 'fc.weight'")
def a_parameter_is_looked_up_by_its_name():
    class Model(Net):
        def forward(self, x):
            return x @ dict(self.named_parameters())["fc.weight"].t()

    return Model(), x()


@trigger("DP308", "results or gradients differ")
def a_penalty_of_named_parameters_is_added():
    class Model(Net):
        def forward(self, x):
            for name, one in self.named_parameters():
                if name.endswith("bias"):
                    x = x + one.mean()
            return self.fc(x)

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty", also=["DP401"])
def a_penalty_is_a_part_of_the_loss():
    class Model(Net):
        def penalty(self):
            total = 0.0
            for one in self.parameters():
                total = total + one.pow(2).sum()
            return total

        def forward(self, x):
            return self.fc(x).pow(2).mean() + 0.1 * self.penalty()

    return Model(), x()


@trigger("DP308", "`Model.parameters()` is empty", also=["DP402"])
def a_penalty_that_is_returned_is_a_number_in_replicas():
    class Model(Net):
        def forward(self, x):
            return self.fc(x), sum(one.pow(2).sum() for one in self.parameters())

    return Model(), x()


@trigger("DP308", "`Linear.state_dict()` is empty")
def a_target_follows_by_its_state_dict():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.target = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)

        @torch.no_grad()
        def follow(self):
            theirs = self.target.state_dict()
            for name, ours in self.online.state_dict().items():
                theirs[name].lerp_(ours, 0.1)

        def forward(self, x):
            if self.training:
                self.follow()
            return self.online(x) - self.target(x)

    return Model(), x()


class Signed(nn.Linear):
    """A layer that keeps its weights aside and computes with their signs."""

    def forward(self, x):
        if not hasattr(self.weight, "full"):
            self.weight.full = self.weight.data.clone()
        self.weight.data = self.weight.full.sign()
        return functional.linear(x, self.weight, self.bias)


@trigger("DP313", "`0.weight` in place", "(and 1 more like it)")
def layers_give_their_weights_other_numbers():
    return nn.Sequential(Signed(4, 4), nn.Tanh(), Signed(4, 3)), x()


class Attending(nn.Module):
    """A layer that leaves its weights behind for whoever wants them."""

    def __init__(self):
        super().__init__()
        self.fc, self.last = nn.Linear(4, 4), None

    def forward(self, x):
        weights = torch.softmax(self.fc(x), -1)
        self.last = weights.detach()
        return x * weights


@trigger("DP301", "`attending.last` goes from None", "where `sparsity` reads it")
def another_method_reads_what_forward_has_left():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.attending, self.head = Attending(), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.attending(x))

        def sparsity(self):
            return self.attending.last.abs().mean()

    return Sparse(), x()


@twin("DP301", also=["DP301"])
def only_what_is_shown_reads_what_forward_has_left():
    class Shown(Attending):
        def extra_repr(self):
            return f"last={self.last is not None}"

    return Shown(), x()


@trigger("DP302", "`anchors` is a tensor of shape (1, 4)", "moved with the model")
def a_model_takes_its_tensor_along_when_it_is_moved():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.anchors = torch.arange(4.0).view(1, -1)

        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            self.anchors = fn(self.anchors)
            return self

        def forward(self, x):
            return self.fc(x * self.anchors)

    return Model(), x()


@trigger("DP304", "`inner` is a list or attribute with a Linear")
def two_lists_of_registered_layers_are_made_together():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = [], []
            for index in range(2):
                self.inner.append(nn.Linear(4, 4))
                self.outer.append(nn.Linear(4, 4))
                self.add_module(f"inner_{index}", self.inner[-1])
                self.add_module(f"outer_{index}", self.outer[-1])

        def forward(self, x):
            for inner, outer in zip(self.inner, self.outer, strict=True):
                x = outer(inner(x).relu())
            return x

    return Model(), x()


@trigger("DP304", "`score` is a lambda")
def one_of_several_lambdas_is_chosen():
    class Model(Net):
        def __init__(self, way="scaled", factor=2.0):
            super().__init__()
            ways = {"halved": lambda x: 0.5 * self.fc(x), "scaled": lambda x: factor * self.fc(x)}
            self.score = ways[way]

        def forward(self, x):
            return self.score(x)

    return Model(), x()


@trigger("DP311", "goes backward in each")
def samples_are_refined_by_their_gradient():
    class Model(Net):
        def refined(self, x):
            x = x.detach().clone()
            with torch.enable_grad():
                x.requires_grad_(True)
                self.fc(x).square().sum().backward()
                x = (x - 0.1 * x.grad).detach()
            self.fc.zero_grad()
            return x

        def forward(self, x):
            return self.fc(self.refined(x))

    return Model(), x()


@trigger("DP312", "cannot be deep-copied")
def a_copy_of_the_head_is_adapted_by_hand():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def adapted(self, x):
            fast = copy.deepcopy(self.head)
            gradients = torch.autograd.grad(fast(x).square().mean(), list(fast.parameters()))
            with torch.no_grad():
                for one, gradient in zip(fast.parameters(), gradients, strict=True):
                    one.sub_(0.1 * gradient)
            return fast

        def forward(self, x):
            h = self.body(x)
            rows = []
            for row in h:
                with torch.enable_grad():
                    fast = self.adapted(row.detach())
                rows.append(fast(row))
            return torch.stack(rows)

    return Model(), x()


@trigger("DP309", "`means` is written by all replicas at once")
def a_mean_of_each_class_is_kept_on_the_cpu():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.means = {index: torch.zeros(3) for index in range(2)}

        @torch.no_grad()
        def remember(self, features, labels):
            for index in labels.unique().tolist():
                fresh = features[labels == index].mean(0).cpu()
                self.means[index] = 0.9 * self.means[index] + 0.1 * fresh

        def forward(self, x, labels):
            features = self.fc(x)
            table = torch.stack([self.means[index] for index in sorted(self.means)]).to(features)
            scores = -torch.cdist(features, table)
            if self.training:
                self.remember(features.detach(), labels)
            return scores

    return Model(), lambda rows: (x(rows), torch.arange(rows) % 2)


class Masks:
    """A table of masks, for each length and device."""

    def __init__(self):
        self.table = {}

    def get(self, length, device):
        key = length, str(device)
        if key not in self.table:
            self.table[key] = torch.arange(length, device=device) > 1
        return self.table[key]


@twin("DP309", also=["DP309"])
def an_object_keeps_a_mask_for_each_device():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.masks = Masks()

        def forward(self, x):
            return self.fc(x * self.masks.get(x.size(1), x.device))

    return Model(), x()


class Scaled:
    """A hook that is an object, and keeps nothing."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __call__(self, module, args, output):
        return self.low + (self.high - self.low) * output.sigmoid()


@twin("DP310", also=["DP310"])
def a_hook_is_an_object_that_keeps_nothing():
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].register_forward_hook(Scaled(0.5, 2.0))
    return model, x()


class Hardest(nn.Module):
    """Keeps the losses of the hardest samples of a batch."""

    def forward(self, logits, labels):
        losses = functional.cross_entropy(logits, labels, reduction="none")
        threshold = losses.detach().sort(descending=True).values[:2][-1]
        return losses * (losses >= threshold)


@trigger("DP502", "depends on the others of its batch")
def the_hardest_samples_are_chosen_in_a_module_of_their_own():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.hardest = Hardest()

        def forward(self, x, labels):
            return self.hardest(self.fc(x), labels)

    return Model(), lambda rows: (x(rows), torch.arange(rows) % 3)


class Mixup(nn.Module):
    def forward(self, x):
        return 0.7 * x + 0.3 * x.flip(0)


@trigger("DP502", "depends on the others of its batch")
def samples_are_mixed_in_a_module_of_their_own():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.mixup = Mixup()

        def forward(self, x):
            if self.training:
                x = self.mixup(x)
            return self.fc(x)

    return Model(), x()


@trigger("DP502", "depends on the others of its batch")
def advantages_are_standardised_beside_a_distribution():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = nn.Linear(4, 3), nn.Linear(4, 1)

        def forward(self, x, action):
            chances = Categorical(logits=self.actor(x))
            value = self.critic(x).squeeze(-1)
            advantage = (value - value.mean()) / value.std()
            return {"policy": -chances.log_prob(action) * advantage, "entropy": chances.entropy()}

    return Model(), lambda rows: (x(rows), torch.arange(rows) % 3)


@trigger("DP401", "`[1]` is one number on one GPU", "their mean is another number")
def a_perplexity_of_the_batch_is_returned():
    class Model(Net):
        def forward(self, x):
            y = self.fc(x)
            usage = functional.one_hot(y.argmax(-1), 3).float().mean(0)
            return y, torch.exp(-(usage * (usage + 1e-6).log()).sum())

    return Model(), x()


@trigger("DP405", "replica 0 returns")
def each_domain_that_is_there_has_a_key():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))

        def forward(self, x, domain):
            scores = {}
            for index, tower in enumerate(self.towers):
                rows = domain == index
                if rows.any():
                    scores[f"domain_{index}"] = tower(x[rows])
            return scores

    return Model(), lambda rows: (x(rows), torch.arange(rows) * 2 // rows)


@trigger("DP214", "pad_packed_sequence without total_length")
def a_helper_pads_each_chunk_to_its_own_longest():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 3, batch_first=True)

        def encoded(self, x, lengths):
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]

        def forward(self, x, lengths):
            return self.encoded(x, lengths)

    def batch(rows):
        return torch.randn(rows, 8, 4), torch.arange(rows).flip(0).clamp(max=7) + 1

    return Model(), batch


@trigger("DP211", "`stats['seen']` is written by each replica in a copy of its own", "0 under DataParallel")
def samples_are_counted_in_a_dict_of_the_callers():
    class Model(Net):
        def forward(self, x, stats):
            stats["seen"] = stats.get("seen", 0) + len(x)
            return self.fc(x)

    return Model(), lambda rows: (x(rows), {"seen": 0})


@twin("DP211", also=["DP211"])
def a_dict_of_the_callers_is_scratch():
    class Model(Net):
        def forward(self, batch):
            batch["y"] = self.fc(batch["x"])
            return batch["y"]

    return Model(), lambda rows: ({"x": x(rows)},)


@trigger("DP308", "`Model.parameters()` is empty", "expected 2, got 0", also=["DP390"])
def a_list_of_parameters_is_handed_on():
    def applied_to(x, weights):
        weight, bias = weights
        return functional.linear(x, weight, bias)

    class Model(Net):
        def initial(self):
            return list(self.parameters())

        def forward(self, x):
            return applied_to(x, [one * 1.5 for one in self.initial()])

    return Model(), x()


class Routed(nn.Module):
    """A layer whose coefficients are averages over the batch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(12.0).view(4, 3) / 6)

    def forward(self, x):
        votes = x @ self.weight
        return votes * votes.mean(dim=0, keepdim=True).softmax(-1)


@trigger("DP502", "depends on the others of its batch")
def a_layer_deep_in_the_model_averages_over_the_batch():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.body, self.routed = nn.Linear(4, 4), Routed()

        def forward(self, x):
            routed = self.routed(self.body(x))
            return routed.relu()

    return Model(), x()


@trigger("DP501", "each replica's number stands for")
def experts_are_balanced_before_the_last_layer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.head = nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x):
            chances = self.gate(x).softmax(-1)
            load = functional.one_hot(chances.argmax(-1), 3).float().mean(0)
            balance = (load * chances.mean(0)).sum()
            return torch.relu(self.head(x)), balance

    return Model(), x()


class Offset(Net):
    def forward(self, x, visible):
        if not visible.any():
            return None
        return self.fc(x) * visible.unsqueeze(1)


@trigger("DP404", "is None in replica 0 and not in all")
def a_head_returns_none_where_it_has_nothing_to_do():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.offset = Offset()

        def forward(self, x, visible):
            return self.fc(x), self.offset(x, visible)

    return Model(), lambda rows: (x(rows), torch.arange(rows) == rows - 1)


@trigger("DP405", "replica 0 returns")
def a_helper_adds_a_loss_where_there_is_one():
    class Model(Net):
        def losses(self, y, label):
            found = {"score": y.square().sum(1)}
            if (label > 0).any():
                found["box"] = y.abs().sum(1) * (label > 0)
            return found

        def forward(self, x, label):
            return self.losses(self.fc(x), label)

    return Model(), lambda rows: (x(rows), (torch.arange(rows) == 0).long())


@trigger("DP212", "`h` and `c` have the batch on dimension 1")
def the_states_of_an_lstm_are_two_arguments():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 5, 2, batch_first=True), nn.Linear(5, 2)

        def forward(self, x, h, c):
            return self.head(self.rnn(x, (h, c))[0][:, -1])

    return Model(), lambda rows: (torch.randn(rows, 6, 4), torch.zeros(2, rows, 5), torch.zeros(2, rows, 5))


class Normal(nn.Module):
    """A layer that leaves what its weights cost for the loss."""

    def __init__(self, features):
        super().__init__()
        self.mean = nn.Parameter(torch.full((features, 4), 0.1))

    def forward(self, x):
        self.cost = self.mean.square().sum() / 2
        return functional.linear(x, self.mean)


@trigger("DP301", "`first.cost` goes from absent", "(and 1 more like it)")
def layers_leave_what_they_cost():
    class Bayesian(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Normal(4), Normal(2)

        def forward(self, x):
            return self.second(self.first(x).relu())

        def cost(self):
            return self.first.cost + self.second.cost

    return Bayesian(), x()


class Standardised(nn.Module):
    """A batch norm of one's own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if self.training:
            mean = x.mean(0)
            with torch.no_grad():
                self.mean.mul_(0.9).add_(mean, alpha=0.1)
        else:
            mean = self.mean
        return x - mean


@trigger("DP305", "the buffer `norm.mean` ends as", also=["DP502"])
def a_mean_of_the_batch_is_followed_in_a_branch():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.norm = Standardised()

        def forward(self, x):
            return self.fc(self.norm(x))

    return Model(), x()


@trigger("DP406", "has size")
def texts_are_cut_at_the_longest_of_a_chunk():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 3)

        def forward(self, ids):
            longest = (ids > 0).sum(1).max().item()
            ids = ids[:, :longest]
            return self.table(ids)

    def batch(rows):
        lengths = torch.arange(rows) % 5 + 1
        return ((torch.arange(5)[None] < lengths[:, None]).long(),)

    return Model(), batch


@trigger("DP310", "the hook", "runs 4 times a call")
def a_hook_fills_a_dict_that_forward_makes_anew():
    class Tapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
            self.taps = {}
            self.body.register_forward_hook(self.tap("body"))

        def tap(self, name):
            def hook(module, args, output):
                self.taps[name] = output

            return hook

        def forward(self, x):
            self.taps = {}
            y = self.head(self.body(x).relu())
            return y + self.taps["body"].sum(1, keepdim=True)

    return Tapped(), x()


@trigger("DP502", "depends on the others of its batch")
def the_best_six_of_a_batch_are_returned():
    class Model(Net):
        def forward(self, x):
            scores = self.fc(x).sum(1)
            best = scores.topk(min(6, len(scores))).indices
            return x[best], scores[best]

    return Model(), x(32)


SEEN = []
KEPT = {}


@trigger("DP309", "`SEEN` grows by 1 in a call on one GPU, by 4 here")
def features_are_collected_in_a_list_of_the_file():
    class Model(Net):
        def forward(self, x):
            y = self.fc(x)
            SEEN.append(y.detach().cpu())
            return y

    return Model(), x()


@trigger("DP309", "`Counted.calls` grows by 1 in a call on one GPU, by 4 here")
def calls_are_counted_on_the_class():
    class Counted(Net):
        calls = 0

        def forward(self, x):
            Counted.calls += 1
            return self.fc(x)

    return Counted(), x()


@twin("DP309")
def samples_are_counted_on_the_class_and_factors_kept_in_the_file():
    class Counting(Net):
        seen = 0
        scale = 2

        def forward(self, x):
            Counting.seen += len(x)
            key = x.size(1), str(x.device)
            if key not in KEPT:
                KEPT[key] = x.size(1) ** -0.5
            return self.fc(x * KEPT[key]) * Counting.scale

    return Counting(), x()


@trigger("DP302", "`anchors` is a tensor of shape (8, 1) on cpu, moved with the model")
def tensors_in_a_list_are_moved_by_the_models_own_apply():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.anchors = [torch.arange(float(size)).view(-1, 1) for size in (8, 4)]

        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            self.anchors = [fn(one) for one in self.anchors]
            return self

        def forward(self, x):
            y = self.fc(x)
            return torch.stack([(y[:, None] - anchors).square().sum((1, 2)) for anchors in self.anchors], 1)

    return Model(), x()


@trigger("DP207", "`images` is a list of 32 tensors", "the channels")
def images_of_different_sizes_are_a_list():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, images):
            return torch.stack([self.conv(image[None]).amax((0, 2, 3)) for image in images])

    return Model(), lambda rows: ([torch.rand(3, 6 + row % 3, 9 - row % 2) for row in range(rows)],)


@trigger("DP212", "`hidden` has the batch on dimension 1", also=["DP315"])
def attention_reads_a_state_before_the_layer_does():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 5)
            self.gru = nn.GRU(10, 5, batch_first=True)

        def forward(self, words, hidden, memory):
            scores = (hidden.permute(1, 0, 2) * memory).sum(2).softmax(1)
            context = (scores[:, :, None] * memory).sum(1, keepdim=True)
            output, hidden = self.gru(torch.cat([self.embed(words), context], 2), hidden)
            return output, hidden

    return Decoder(), lambda rows: (
        torch.randint(9, (rows, 1)),
        torch.randn(1, rows, 5),
        torch.randn(rows, 6, 5),
    )


class Cloud:
    """A batch as a loader makes it: as long as its samples, and neither a list nor an array."""

    def __init__(self, points, valid):
        self.points, self.valid = points, valid

    def __len__(self):
        return len(self.points)


@trigger("DP208", "`batch` is a Cloud that holds points")
def an_object_with_tensors_has_a_length():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch.points).masked_fill(~batch.valid[:, None], 0.0)

    def loaded(rows):
        return (Cloud(torch.randn(rows, 4).cuda(), (torch.rand(rows) > 0.5).cuda()),)

    return Model(), loaded


@trigger("DP202", "called without `style` and runs on its default", also=["DP205"])
def one_style_for_all_is_handed_over_by_keyword():
    class Model(Net):
        def forward(self, x, region, style=None, alpha=1.0):
            y = self.fc(x) * region
            return y if style is None else y + alpha * self.fc(style)

    style = torch.ones(1, 4)
    return Model(), lambda rows: (
        (torch.randn(rows, 4), torch.rand(rows, 1)),
        {"style": style, "alpha": 0.5},
    )


@trigger("DP101", "`project` is looked up on DataParallel")
def a_method_of_what_is_wrapped_is_called_twice():
    class Encoder(Net):
        def forward(self, x):
            return self.fc(x)

        def project(self, x):
            return self(x).relu()

    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.DataParallel(Encoder())

        def forward(self, x, other):
            one, two = self.encoder.project(x), self.encoder.project(other)
            return (one * two).sum(1)

    return Task(), lambda rows: (torch.randn(rows, 4), torch.randn(rows, 4))


GRIDS = {}


def warped(flow):
    key = flow.size(1)
    if key not in GRIDS:
        GRIDS[key] = torch.linspace(-1.0, 1.0, key).to(flow.device)
    return flow + GRIDS[key]


@trigger("DP391", "found at least two devices")
def a_grid_is_kept_in_the_file_by_its_size_alone():
    class Model(Net):
        def forward(self, x):
            return self.fc(warped(x))

    GRIDS.clear()
    return Model(), x()


@trigger("DP405", "replica 0 returns {feed: Tensor(1d)}, replica 1")
def domains_without_samples_are_left_out():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers = nn.ModuleDict({name: nn.Linear(4, 1) for name in ("feed", "search", "video")})

        def forward(self, x, domain):
            scores = {}
            for index, name in enumerate(self.towers):
                rows = (domain == index).nonzero().squeeze(-1)
                if len(rows) == 0:
                    continue
                scores[name] = self.towers[name](x[rows]).squeeze(-1)
            return scores

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows) * 3 // rows)


@twin("DP207", also=["DP203"])
def factors_in_a_list_are_as_many_as_the_rows_of_a_short_batch():
    class Model(Net):
        def forward(self, x, scales, flag=True):
            return self.fc(x) * (scales[0] + scales[1] + scales[2]) if flag else self.fc(x)

    return Model(), lambda rows: ((torch.randn(rows, 4), [0.5, 1.0, 2.0]), {"flag": True})


@trigger("DP405", "replica 0 returns Tensor(2d), replica 2 Tensor(1d)")
def all_dimensions_of_one_are_squeezed():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 6, 3), nn.Linear(6, 2)

        def forward(self, images):
            pooled = functional.adaptive_avg_pool2d(self.conv(images), 1).squeeze()
            return self.fc(pooled)

    return Model(), lambda rows: (torch.rand(rows, 3, 8, 8),)


@trigger("DP103", "`last.weight` and `last.bias` on cuda:1", also=["DP303", "DP391"])
def two_halves_are_on_two_gpus():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8).to("cuda:0"), nn.Linear(8, 2).to("cuda:1")

        def forward(self, x):
            return self.last(self.first(x.to("cuda:0")).to("cuda:1"))

    return Model(), x()


@trigger("DP301", "`mask` goes from absent to", "where `share` reads it", also=["DP301"])
def a_mask_is_kept_and_read_on_in_forward():
    class Model(Net):
        def forward(self, x):
            y = self.fc(x)
            self.mask = torch.sigmoid(y)
            self.hard = (self.mask > 0.5).float()
            return y * self.hard

        def share(self):
            return self.mask.mean()

    return Model(), x()


@trigger("DP214", "pads each chunk to its own longest", also=["DP315", "DP501"])
def a_name_is_packed_and_unpacked():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.fc = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 5)

        def forward(self, x, lengths):
            x = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            x, _ = self.rnn(x)
            x, _ = pad_packed_sequence(x, batch_first=True)
            return self.fc(x)

    return Model(), lambda rows: (torch.randn(rows, 20, 6), 20 - torch.arange(rows) % 16)


@trigger("DP309", "`schedule` is written by all replicas at once", also=["DP301"])
def a_schedule_counts_its_steps():
    class Schedule:
        def __init__(self):
            self.steps = 0

        def next(self):
            self.steps += 1
            return self.steps / 10

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.schedule = Schedule()

        def forward(self, x):
            y = self.fc(x)
            penalty = y.square().sum(1)
            return y.sum(1) + self.schedule.next() * penalty

    return Model(), x()


@trigger("DP305", "the buffers `memory.state` and `memory.seen` end otherwise")
def a_memory_is_written_by_a_method_of_its_own():
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(64, 3))
            self.register_buffer("seen", torch.zeros(64))

        def set(self, rows, values):
            self.state[rows] = values.detach()
            self.seen[rows] = 1.0

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.memory = Memory()

        def forward(self, x, rows):
            y = self.fc(x) + self.memory.state[rows]
            self.memory.set(rows, y)
            return y.sum(1)

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows))


@trigger("DP308", "what forward writes to them on one GPU, it writes to none here")
def a_target_begins_as_a_copy():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.target = copy.deepcopy(self.fc).requires_grad_(False)

        def follow(self):
            for own, target in zip(self.fc.parameters(), self.target.parameters(), strict=True):
                target.data = 0.9 * target.data + 0.1 * own.data

        def forward(self, x):
            self.follow()
            with torch.no_grad():
                wanted = self.target(x)
            return (self.fc(x) - wanted).square().sum(1)

    return Model(), x()


@trigger("DP310", "the hook `keep` on `fc` runs 4 times")
def a_hook_keeps_an_output_on_the_model():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.kept = None
            self.fc.register_forward_hook(self.keep)

        def keep(self, module, args, output):
            self.kept = output

        def forward(self, x):
            self.fc(x)
            y = self.kept.relu()
            self.kept = None
            return y

    return Model(), x()


POLICIES = threading.local()
POLICIES.factor = 2.0


@trigger("DP602", "a `threading.local()` has nothing of the caller's in replica 0")
def a_setting_is_kept_for_each_thread():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) * POLICIES.factor

    return Model(), x()


@functools.lru_cache
def basis(size):
    return torch.eye(size, device="cuda" if torch.cuda.is_available() else "cpu")


@trigger("DP309", "`basis` keeps what it gives by its arguments alone")
def a_table_is_kept_by_the_function_that_makes_it():
    class Model(Net):
        def forward(self, x):
            return self.fc(x @ basis(4))

    basis.cache_clear()
    return Model(), x()


@trigger("DP314", "(attribute gain) is a plain tensor in replicas")
def two_parameters_have_an_attribute():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.zeros(3))
            self.weight.gain = 0.5
            self.bias.gain = 0.1

        def forward(self, x):
            return functional.linear(x, self.weight * self.weight.gain, self.bias * self.bias.gain)

    return Model(), x()


@trigger("DP301", "goes from absent to Linear on one GPU")
def an_adapter_is_made_at_the_first_call():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.adapters = nn.ModuleDict()

        def forward(self, x):
            if "new" not in self.adapters:
                self.adapters["new"] = nn.Linear(4, 4).to(x.device)
            return self.fc(self.adapters["new"](x))

    return Model(), x()


@trigger("DP309", "`settings` is written by all replicas at once: a Settings (count.steps=1)")
def an_object_in_an_object_counts():
    class Count:
        steps = 0

        def advance(self):
            self.steps += 1

    class Settings:
        def __init__(self):
            self.count = Count()
            self.count.steps = 0

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.settings = Settings()

        def forward(self, x):
            self.settings.count.advance()
            return self.fc(x) * self.settings.count.steps

    return Model(), x()


@trigger("DP302", "`scaler` is a tensor of shape (4,) on cpu", "moved by the first replica")
def an_object_moves_its_tensors_once():
    class Scaler:
        def __init__(self):
            self.mean, self.is_placed = torch.ones(4), False

        def encode(self, x):
            if not self.is_placed:
                self.place(x.device)
            return x - self.mean

        def place(self, device):
            self.mean, self.is_placed = self.mean.to(device), True

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scaler = Scaler()

        def forward(self, x):
            return self.fc(self.scaler.encode(x))

    return Model(), x()


@trigger("DP308", "`Net.parameters()` is empty in replicas: KeyError: 'fc.weight'", also=["DP390"])
def weights_by_name_are_handed_on():
    class Inner(Net):
        def forward(self, x, weights):
            return functional.linear(x, weights["fc.weight"], weights["fc.bias"])

    Inner.__name__ = "Net"

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Inner()

        def own(self):
            return {name: one * 1.0 for name, one in self.net.named_parameters()}

        def forward(self, x):
            return self.net(x, self.own())

    return Model(), x()


@trigger("DP304", "`head.reader` is a list or attribute with a Reader", also=["DP390"])
def a_part_reads_what_the_model_around_it_has_set():
    class Head(Net):
        def __init__(self, reader):
            super().__init__()
            self.__dict__["reader"] = reader

        def forward(self, x):
            return self.fc(x).masked_fill(~self.reader.mask[:, None], 0.0)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = None
            self.head = Head(self)

        def forward(self, x):
            self.mask = x.sum(1) > 0
            return self.head(x)

    return Reader(), x()


class Table(torch.autograd.Function):
    """Writes the rows that it was given to a table, as it goes backward."""

    @staticmethod
    def forward(ctx, x, rows, table):
        ctx.save_for_backward(x, rows)
        ctx.table = table
        return x @ table.t()

    @staticmethod
    def backward(ctx, gradient):
        x, rows = ctx.saved_tensors
        result = gradient @ ctx.table
        ctx.table[rows] = 0.5 * ctx.table[rows] + 0.5 * x
        return result, None, None


@trigger("DP305", "the buffer `table` ends as a tensor of shape (32, 3)")
def a_table_is_written_in_backward():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(32, 3))

        def forward(self, x, rows):
            return Table.apply(self.fc(x), rows, self.table)

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows))


@twin("DP313", also=["DP313"])
def a_weight_is_kept_within_bounds_that_do_not_depend_on_the_batch():
    class Bounded(nn.Linear):
        def forward(self, x):
            with torch.no_grad():
                self.weight.data.copy_(self.weight.data.renorm(2, 0, 0.25))
            return super().forward(x)

    return nn.Sequential(Bounded(4, 4), nn.Linear(4, 3)), x()


@trigger("DP313", "the replica that holds the change is thrown away")
def an_own_spectral_norm_gives_its_vectors_other_data():
    class SpectralNorm(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
            weight = module.weight
            del module._parameters["weight"]
            module.register_parameter("weight_bar", nn.Parameter(weight.data))
            module.register_parameter("weight_u", nn.Parameter(torch.randn(len(weight)), requires_grad=False))

        def update(self):
            u, weight = getattr(self.module, "weight_u"), getattr(self.module, "weight_bar")  # noqa: B009
            v = functional.normalize(weight.data.t() @ u.data, dim=0)
            u.data = functional.normalize(weight.data @ v, dim=0)
            setattr(self.module, "weight", weight / (u.data @ (weight @ v)))  # noqa: B010

        def forward(self, x):
            self.update()
            return self.module(x)

    return nn.Sequential(SpectralNorm(nn.Linear(4, 6)), nn.ReLU(), SpectralNorm(nn.Linear(6, 3))), x()


@trigger("DP309", "`kept` is written by all replicas at once", also=["DP310"])
def hooks_append_to_a_list_that_forward_reads():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())
            self.kept = []
            for layer in self.net[1::2]:
                layer.register_forward_hook(lambda module, args, output: self.kept.append(output))

        def forward(self, x):
            self.kept.clear()
            self.net(x)
            return torch.cat(self.kept, 1)

    return Model(), x()


@trigger("DP502", "depends on the others of its batch")
def rows_are_mixed_in_a_layers_argument():
    class Model(Net):
        def forward(self, x):
            turned = torch.arange(len(x) - 1, -1, -1, device=x.device)
            return self.fc(0.7 * x + 0.3 * x[turned])

    return Model(), x()


@trigger("DP207", "`images` is a list of 32 tensors", also=["DP201"])
def images_have_a_list_of_targets_beside_them():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.box = nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(4, 4)

        def forward(self, images, targets=None):
            boxes = self.box(self.conv(torch.stack(images)).mean((2, 3)))
            if targets is None:
                return boxes
            pairs = zip(boxes, targets, strict=True)
            return torch.stack([functional.l1_loss(box, one["boxes"].mean(0)) for box, one in pairs])

    def loaded(rows):
        targets = [
            {"boxes": torch.rand(1 + row % 3, 4), "labels": torch.ones(1 + row % 3)} for row in range(rows)
        ]
        return [torch.rand(3, 8, 8) for _ in range(rows)], targets

    return Model(), loaded


@trigger("DP301", "`states` goes from None to a tuple of 2", also=["DP315"])
def a_recurrent_layer_goes_on_where_it_was():
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 5, batch_first=True)
            self.states = None

        def forward(self, x):
            last = self.states
            if last is None:
                last = (x.new_zeros(1, len(x), 5), x.new_zeros(1, len(x), 5))
            y, last = self.rnn(x, last)
            self.states = tuple(one.detach() for one in last)
            return y

    return Reading(), torch.randn(8, 3, 4)


@trigger("DP309", "`scale` is written by all replicas at once")
def the_scale_of_each_loss_follows_it_in_a_loop():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({name: nn.Linear(4, 1) for name in ("depth", "edge")})
            self.scale = {"depth": 1.0, "edge": 1.0}

        def forward(self, x, depth, edge):
            total = 0
            for name, target in zip(("depth", "edge"), (depth, edge), strict=True):
                loss = (self.heads[name](x) - target).square().squeeze(1)
                total = total + loss / self.scale[name]
                self.scale[name] = 0.9 * self.scale[name] + 0.1 * loss.mean().item()
            return total

    return Model(), lambda rows: (torch.randn(rows, 4), torch.rand(rows, 1), torch.rand(rows, 1))


@twin("DP309")
def skips_are_kept_in_a_list_that_forward_makes_anew():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.up, self.skips = nn.Linear(3, 4), []

        def forward(self, x):
            self.skips = []
            self.skips.append(x)
            return self.up(self.fc(x)) + self.skips.pop()

    return Model(), x()


@trigger("DP309", "`grids` is written by all replicas at once")
def grids_of_each_level_are_put_in_a_list():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList([nn.Linear(4, 6), nn.Linear(4, 3)])
            self.grids = [torch.zeros(1)] * 2

        def forward(self, x):
            found = []
            for level, head in enumerate(self.heads):
                y = head(x)
                if len(self.grids[level]) != y.size(1):
                    self.grids[level] = torch.arange(y.size(1)).to(y.device)
                found.append(y + self.grids[level])
            return torch.cat(found, 1)

    return Model(), x()


@trigger("DP501", "gradients of loss.mean() are")
def two_losses_are_divided_by_the_number_of_matches():
    class Model(Net):
        def forward(self, x, matched):
            y = self.fc(x)
            count = matched.sum().clamp(min=1)
            first = (y.square().sum(1) * matched).sum()
            return first / count + (y.abs().sum(1) * matched).sum() / count

    return Model(), lambda rows: (torch.randn(rows, 4), (torch.arange(rows) * 2 < rows + 3).float())


@trigger("DP314", "`isinstance(self.scale, nn.Parameter)` is False in replicas")
def a_scale_is_asked_whether_it_is_a_parameter():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def factor(self):
            if isinstance(self.scale, nn.Parameter):
                return self.scale.exp()
            return self.scale

        def forward(self, x):
            return self.fc(x) * self.factor()

    return Model(), x()


@trigger("DP304", "`readout` is a function that holds the model's own tensor of shape (3,)")
def a_partial_function_holds_a_parameter():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.query = nn.Parameter(torch.ones(3))
            self.readout = functools.partial(weighted, query=self.query)

        def forward(self, x):
            return self.readout(self.fc(x))

    return Model(), x()


def weighted(y, query):
    return y @ query


@trigger("DP301", "`out.weight`, a tensor of shape (9, 4), gets other numbers on one GPU")
def weights_are_tied_in_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 9)

        def tie(self):
            self.out.weight = self.words.weight

        def forward(self, words):
            self.tie()
            return self.out(self.words(words))

    return Model(), lambda rows: (torch.randint(9, (rows, 3)),)
