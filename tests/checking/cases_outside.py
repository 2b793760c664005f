"""Models whose forward does what needs the whole batch, as they are written outside of this project.

Each is repaired by forward's own lines, moved outside or written anew: `test_fixes` puts the printed lines in
the place of what they repair.
"""

import copy

import torch
from casetable import Linear, Net, trigger, twin, x
from torch import nn
from torch.nn import functional

LABELS = torch.arange(8) % 3


def masks(rows=8):
    """Masks of which each sample has more than the one before, and at least one place."""
    shares = torch.linspace(0.05, 0.8, rows)[:, None]
    found = (torch.rand(rows, 3, generator=torch.Generator().manual_seed(3)) < shares).float()
    found[:, 0] = 1
    return found


@trigger("DP501", "another count, or choice")
def a_dice_loss_over_the_batch():
    class Model(Net):
        def dice(self, logits, mask):
            overlap = (logits.sigmoid() * mask).sum()
            return 1 - (2 * overlap + 1) / (logits.sigmoid().sum() + mask.sum() + 1)

        def forward(self, x, mask):
            logits = self.fc(x)
            loss = self.dice(logits, mask)
            return loss  # noqa: RET504 - as it is written

    return Model(), (x(), masks())


@twin("DP501")
def a_dice_loss_of_each_sample():
    class Model(Net):
        def forward(self, x, mask):
            share = self.fc(x).sigmoid()
            return 1 - (2 * (share * mask).sum(1) + 1) / (share.sum(1) + mask.sum(1) + 1)

    return Model(), (x(), masks())


@trigger("DP501", "another count, or choice")
def a_dice_loss_behind_an_early_return():
    class Model(Net):
        def forward(self, x, mask=None):
            logits = self.fc(x)
            if mask is None:
                return logits
            share = logits.sigmoid()
            return 1 - 2 * (share * mask).sum() / (share.sum() + mask.sum())

    return Model(), (x(), masks())


@trigger("DP501", "gradients of loss.mean() are", also=["DP401"])
def a_loss_beside_its_logits_in_a_dict():
    class Model(Net):
        def forward(self, x, mask=None):
            logits = self.fc(x)
            out = {"logits": logits}
            if mask is not None:
                out["loss"] = 1 - (logits.sigmoid() * mask).sum() / mask.sum()
            return out

    return Model(), (x(), masks())


@trigger("DP501", "another count, or choice")
def the_hardest_pixels_are_averaged():
    class Model(Net):
        def forward(self, x, y):
            losses = functional.cross_entropy(self.fc(x), y, reduction="none").view(-1)
            number = int(0.5 * losses.numel())
            hard, _ = torch.topk(losses, number)
            return hard.mean()

    return Model(), (3 * x(16), torch.arange(16) % 3)


@trigger("DP501", "another count")
def the_mean_of_tokens_is_a_quotient():
    class Model(Net):
        def forward(self, x, mask):
            losses = self.fc(x).square()
            return (losses * mask).sum() / mask.sum()

    return Model(), (x(), masks())


@trigger("DP501", "another count")
def classes_are_weighted():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("weights", torch.tensor([0.1, 1.0, 5.0]))

        def forward(self, x, y):
            return functional.cross_entropy(self.fc(x), y, weight=self.weights)

    return Model(), (x(), torch.tensor([0, 0, 1, 2, 0, 1, 2, 2]))


@trigger("DP501", "another count")
def losses_of_valid_pixels_are_averaged():
    class Model(Net):
        def forward(self, x, mask):
            losses = self.fc(x).square()
            return losses[mask > 0].mean()

    return Model(), (x(), masks())


@trigger("DP501", "gradients of loss.mean()")
def a_contrastive_loss_over_two_views():
    class Model(Net):
        def forward(self, first, second):
            z = functional.normalize(torch.cat([self.fc(first), self.fc(second)], dim=0), dim=1)
            near = (z @ z.t()).fill_diagonal_(-1e9)
            n = first.size(0)
            other = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
            return functional.cross_entropy(near, other)

    return Model(), (x(), x().flip(1))


@trigger("DP501", "gradients of loss.mean()")
def a_loss_of_images_and_texts():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.text = nn.Linear(4, 3)
            self.scale = nn.Parameter(torch.tensor(1.0))

        def forward(self, image, text):
            a = functional.normalize(self.fc(image), dim=-1)
            b = functional.normalize(self.text(text), dim=-1)
            logits = self.scale.exp() * a @ b.t()
            target = torch.arange(len(logits), device=logits.device)
            return (
                functional.cross_entropy(logits, target) + functional.cross_entropy(logits.t(), target)
            ) / 2

    return Model(), (x(), x().flip(1))


@twin("DP502")
def features_of_images_and_texts():
    class Model(Net):
        def forward(self, image, text):
            return functional.normalize(self.fc(image), dim=-1), self.fc(text)

    return Model(), (x(), x().flip(1))


@trigger("DP502", "depends on the others of its batch")
def the_hardest_negative_of_the_batch():
    class Model(Net):
        def forward(self, x, y):
            e = self.fc(x)
            far = torch.cdist(e, e)
            same = y.unsqueeze(0) == y.unsqueeze(1)
            return functional.relu((far * same).max(1).values - (far + 1e6 * same).min(1).values + 0.3)

    return Model(), (x(), LABELS)


@trigger("DP502", "compares each sample with every other")
def cosines_of_all_pairs_in_one_line():
    class Model(Net):
        # fmt: off
        def forward(self, a, b): return torch.cosine_similarity(self.fc(a)[:, None], self.fc(b)[None], -1)
        # fmt: on

    return Model(), (x(), x().flip(1))


@trigger("DP502", "depends on the others of its batch")
def samples_are_mixed_with_their_mirror():
    class Model(Net):
        def forward(self, x):
            x = 0.7 * x + 0.3 * x.flip(0)
            return self.fc(x)

    return Model(), x()


@trigger("DP410", "has no batch dimension")
def a_covariance_is_returned():
    class Model(Net):
        def forward(self, x):
            h = self.fc(x)
            covariance = h.t() @ h / len(h)
            return covariance  # noqa: RET504 - as it is written

    return Model(), x()


class Coded(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 3))
        self.register_buffer("sizes", torch.zeros(5))


@trigger("DP305", "the buffers `codes` and `sizes`", "chunk 0 alone", also=["DP502"])
def a_codebook_follows_its_data():
    class Model(Coded):
        def forward(self, x):
            z = self.fc(x)
            nearest = torch.cdist(z, self.codes).argmin(1)
            chosen = functional.one_hot(nearest, 5).float()
            if self.training:
                self.sizes.data.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
                self.codes.data.mul_(0.9).add_((chosen.T @ z).detach(), alpha=0.1)
            return z + (self.codes[nearest] - z).detach()

    return Model(), x()


@trigger("DP305", "the buffers `queue` and `at`", "chunk 0 alone")
def keys_are_queued_by_a_method():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("queue", torch.zeros(32, 3))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def enqueue(self, keys):
            at = int(self.at)
            self.queue[at : at + len(keys)] = keys
            self.at[0] = at + len(keys)

        def forward(self, x):
            k = self.fc(x)
            self.enqueue(k)
            return k.relu()

    return Model(), x()


class Meter:
    def __init__(self):
        self.total = 0.0

    def update(self, value):
        self.total += value


@trigger("DP309", "`meter`")
def an_accuracy_is_metered():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.meter = Meter()

        def forward(self, x, y):
            logits = self.fc(x)
            accuracy = (logits.argmax(1) == y).float().mean().item()
            self.meter.update(accuracy)
            return functional.cross_entropy(logits, y, reduction="none")

    return Model(), (x(), LABELS)


@trigger("DP301", "`aux_loss`")
def a_loss_is_left_on_self():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.aux_loss = 0.0

        def forward(self, x):
            share = self.fc(x).softmax(-1)
            self.aux_loss = (share.mean(0) ** 2).sum()
            return share.log()

    return Model(), x()


@twin("DP313")
def a_loss_on_self_is_for_forward_alone():
    class Model(Net):
        def forward(self, x):
            self.last_loss = self.fc(x).square().mean()
            return self.fc(x) + 0 * self.last_loss.detach()

    return Model(), x()


@trigger("DP313", "`fc.weight`", "is thrown away")
def the_data_of_a_weight_is_assigned():
    class Model(Net):
        def forward(self, x):
            self.fc.weight.data = functional.normalize(self.fc.weight.data, dim=1)
            return self.fc(x)

    return Model(), x()


@trigger("DP313", "freezes a parameter")
def a_weight_is_frozen_in_forward():
    class Model(Net):
        def forward(self, x):
            self.fc.weight.requires_grad_(False)
            return self.fc(x)

    return Model(), x()


@trigger("DP308", "results or gradients differ")
def a_layer_is_frozen_in_forward():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x, freeze=True):
            if freeze:
                for parameter in self.body.parameters():
                    parameter.requires_grad_(False)
            return self.fc(self.body(x).relu())

    return Model(), x()


@trigger("DP308", "is empty in replicas")
def a_teacher_follows_within_no_grad():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.teacher = nn.Linear(4, 3).requires_grad_(False)

        def follow(self):
            for mine, his in zip(self.fc.parameters(), self.teacher.parameters(), strict=True):
                his.data = 0.9 * his.data + 0.1 * mine.data

        def forward(self, x):
            y = self.fc(x)
            with torch.no_grad():
                self.follow()
                aim = self.teacher(x)
            return y, aim

    return Model(), x()


@trigger("DP311", "goes backward")
def a_saliency_is_read_from_an_input():
    class Model(Net):
        def forward(self, x):
            x = x.detach().requires_grad_(True)
            self.fc(x).max(1).values.sum().backward()
            return x.grad

    return Model(), x()


@trigger("DP311", "goes backward", also=["DP502"])
def fast_weights_are_read_from_gradients():
    class Model(Net):
        def forward(self, x, y):
            loss = functional.cross_entropy(self.fc(x), y)
            self.fc.zero_grad()
            loss.backward()
            weight = self.fc.weight - 0.1 * self.fc.weight.grad
            bias = self.fc.bias - 0.1 * self.fc.bias.grad
            return functional.linear(x, weight, bias)

    return Model(), (x(), LABELS)


@trigger("DP311", "goes backward", also=["DP401"])
def a_step_is_taken_in_forward():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.optimizer = torch.optim.SGD(self.fc.parameters(), lr=0.1)

        def forward(self, x, y):
            loss = functional.cross_entropy(self.fc(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    return Model(), (x(), LABELS)


@trigger("DP312", "cannot be deep-copied")
def a_weight_is_copied_in_forward():
    class Model(Net):
        def forward(self, x):
            old = copy.deepcopy(self.fc.weight)
            return functional.linear(x, old) + self.fc(x)

    return Model(), x()


@trigger("DP312", "cannot be deep-copied")
def a_teacher_is_copied_in_forward():
    class Model(Net):
        def forward(self, x):
            teacher = copy.deepcopy(self.fc).eval()
            with torch.no_grad():
                aim = teacher(x)
            return self.fc(x), aim

    return Model(), x()


@trigger("DP312", "cannot be deep-copied", also=["DP502"])
def a_copy_is_trained_in_forward():
    class Model(Net):
        def forward(self, x, y):
            fast = copy.deepcopy(self.fc)
            optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
            for _ in range(2):
                loss = functional.cross_entropy(fast(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return fast(x)

    return Model(), (x(), LABELS)


class Result:
    def __init__(self, logits, labels=None):
        self.logits = logits
        self.labels = labels


@trigger("DP402", "of type Result")
def a_result_of_its_own_class_is_made_by_position():
    class Model(Net):
        def forward(self, x):
            y = self.fc(x)
            return Result(y, y.argmax(1))

    return Model(), x()


@trigger("DP402", "of type Result")
def a_result_of_its_own_class_is_filled_later():
    class Model(Net):
        def forward(self, x):
            result = Result(self.fc(x))
            result.labels = result.logits.argmax(1)
            return result

    return Model(), x()


@trigger("DP402", "`[1]` and the result's `[2]`", "of type int")
def sizes_are_returned():
    class Model(Net):
        def forward(self, x):
            y = self.fc(x)
            return y, x.shape[0], y.shape[-1]

    return Model(), x()


@trigger("DP405", "replica 0 returns")
def as_many_tensors_as_are_found():
    class Model(Net):
        def forward(self, x):
            found = []
            for row in self.fc(x):
                if row[0] > 0:
                    found.append(row)  # noqa: PERF401 - as it is written
            return found

    torch.manual_seed(0)
    return Model(), x(16)


@trigger("DP302", "`weights` holds a parameter")
def a_tied_weight_is_kept_in_a_list():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.weights = [self.fc.weight]

        def forward(self, x):
            return functional.linear(self.fc(x), self.weights[0].t())

    return Model(), x()


@twin("DP302")
def a_tied_weight_is_used_by_its_name():
    class Model(Linear):
        def forward(self, x):
            return functional.linear(self.fc(x), self.fc.weight.t())

    return Model(), x()


@trigger("DP212", "the state is made for the whole batch")
def a_method_makes_the_state():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = 8
            self.rnn = nn.GRU(4, 5, batch_first=True)

        def first_state(self, device):
            return torch.zeros(1, self.rows, 5, device=device)

        def forward(self, x):
            out, _ = self.rnn(x, self.first_state(x.device))
            return out

    return Model(), torch.randn(8, 6, 4)


@trigger("DP212", "`state[0]` and `state[1]` have the batch on dimension 1")
def a_state_of_two_layers_is_given():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 5, 2, batch_first=True)

        def forward(self, x, state):
            out, _ = self.rnn(x, state)
            return out

    return Model(), (torch.randn(8, 6, 4), (torch.zeros(2, 8, 5), torch.zeros(2, 8, 5)))


@trigger("DP502", "depends on the others of its batch")
def a_layer_reads_what_is_centred_over_the_batch():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            z = self.fc(x).tanh()
            prototype = z.mean(dim=0, keepdim=True)
            return self.head(z - prototype)

    return Model(), x()


@trigger("DP502", "depends on the others of its batch")
def a_method_takes_statistics_of_the_batch_between_layers():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 2), nn.Linear(2, 2)

        def with_deviation(self, h):
            deviation = (h - h.mean(0)).pow(2).mean(0).sqrt().mean()
            return torch.cat([h, deviation.expand(len(h), 1)], 1)

        def forward(self, x):
            h = self.with_deviation(functional.leaky_relu(self.fc(x)))
            return self.head(functional.leaky_relu(self.body(h)))

    return Model(), x()


@twin("DP502")
def a_method_takes_statistics_of_each_sample_between_layers():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 2), nn.Linear(2, 2)

        def with_deviation(self, h):
            return torch.cat([h, h.std(1, keepdim=True)], 1)

        def forward(self, x):
            h = self.with_deviation(functional.leaky_relu(self.fc(x)))
            return self.head(functional.leaky_relu(self.body(h)))

    return Model(), x()


@trigger("DP313", "`fc.weight`", "only replica 0's change")
def each_layer_is_clipped_in_a_loop():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 1)

        def forward(self, x):
            for layer in (self.fc, self.head):
                layer.weight.data.clamp_(-0.05, 0.05)
            return self.head(self.fc(x))

    return Model(), x()
