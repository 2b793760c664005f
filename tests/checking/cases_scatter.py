"""Rules of scatter: DP2."""

import collections

import numpy as np
import torch
from casetable import Batch, Linear, Net, Recurrent, steps, trigger, twin, x
from torch import nn


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


@trigger("DP212", "`state[0]` and `state[1]` have the batch on dimension 1")
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


# ---- what is cut, and must not be, or along another dimension ----


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, mask):
        return self.attention(x, x, x, attn_mask=mask)[0]


@trigger("DP205", "`mask` is cut into chunks with the batch", "they run when each gets it whole")
def a_mask_as_long_as_the_batch_is_cut():
    return Attentive(), (
        torch.randn(8, 8, 4, generator=torch.Generator().manual_seed(1)),
        torch.zeros(8, 8),
    )


@trigger("DP201", "`edge_index` has 2 of 8 rows")
def edges_of_a_graph_cut_the_batch():
    class Model(Net):
        def forward(self, x, edge_index):
            source, target = edge_index[0] % len(x), edge_index[-1] % len(x)
            return self.fc(x).index_add(0, target, self.fc(x)[source])

    return Model(), (x(), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))


class Recurring(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 5)

    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x)[0]


@trigger("DP216", "`x` of shape (6, 8, 4) has its samples on dimension 1")
def time_comes_first():
    return Recurring(), torch.randn(6, 8, 4, generator=torch.Generator().manual_seed(1))


@trigger("DP216", "samples on dimension 1")
def time_comes_first_in_a_transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    return layer, torch.randn(6, 8, 4, generator=torch.Generator().manual_seed(1))


@twin("DP216", gpus=2)
def time_comes_first_and_samples_are_cut():
    return nn.DataParallel(Recurring().to("cuda:0"), device_ids=[0, 1], dim=1), torch.randn(6, 8, 4)


class Metas(Net):
    def forward(self, img, img_metas):
        scales = torch.tensor([meta["scale"] for meta in img_metas], device=img.device)
        return self.fc(img) * scales[: len(img), None]


@trigger("DP207", "`img_metas` (a list of 8 dict)")
def metas_of_images_go_to_every_replica():
    return Metas(), (x(), [{"scale": float(i), "ori_shape": (3, 4)} for i in range(8)])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, images):
        return [self.conv(image[None]).mean((2, 3))[0] for image in images]


@trigger("DP207", "`images` is a list of 8 tensors", "the channels")
def a_list_of_images_is_cut_by_channels():
    return Detector(), ([torch.randn(3, 8, 8) for _ in range(8)],)


@twin("DP207")
def images_are_stacked():
    class Model(Detector):
        def forward(self, images):
            return self.conv(images).mean((2, 3))

    return Model(), torch.randn(8, 3, 8, 8)


class Counted(Net):
    """As transformers' models under Trainer: the number of items is the same for each GPU."""

    def forward(self, x, num_items):
        return self.fc(x) / num_items.mean()


@twin("DP205")
def one_number_for_each_gpu():
    return Counted(), lambda rows: {"x": x(rows), "num_items": torch.full((4, 1), 12.0)}


@twin("DP201", also=["DP213"], data_size=17)
def one_number_for_each_gpu_beside_a_lone_sample():
    class Model(Net):
        def forward(self, x, labels, num_items):
            return (self.fc(x) - labels[:, None]) / num_items.mean()

    return Model(), lambda rows: {
        "x": x(rows), "labels": torch.arange(float(rows)), "num_items": torch.full((4, 1), 12.0)
    }  # fmt: skip


@trigger("DP216", "samples on dimension 1")
def time_comes_first_and_so_does_the_layer_of_a_state():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 5)

        def forward(self, x, h):
            self.rnn.flatten_parameters()
            return self.rnn(x, h)[0]

    return Model(), (torch.randn(6, 8, 4, generator=torch.Generator().manual_seed(1)), torch.zeros(1, 8, 5))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, context, own_mask, cross_mask):
        x = self.attention(x, x, x, attn_mask=own_mask)[0]
        return self.cross(x, context, context, attn_mask=cross_mask)[0]


@trigger("DP205", "`own_mask` and `cross_mask` are cut", "when each gets them whole")
def two_masks_as_long_as_the_batch_are_cut():
    x = torch.randn(8, 8, 4, generator=torch.Generator().manual_seed(1))
    return Attending(), (x, x.flip(0), torch.zeros(8, 8), torch.zeros(8, 8))


@trigger("DP205", "`mask` is cut into chunks")
def a_mask_shorter_than_the_batch_is_told_once():
    return Attentive(), (
        torch.randn(8, 5, 4, generator=torch.Generator().manual_seed(1)),
        torch.zeros(5, 5),
    )


@trigger("DP205", "`adjacency` of shape (8, 8) relates each row of the batch to every other")
def the_nodes_of_one_graph_are_the_batch():
    class Model(Net):
        def forward(self, x, adjacency):
            return adjacency @ self.fc(x)

    return Model(), (x(), torch.eye(8) + 0.1)


@trigger("DP201", "`positions` has 1 of 8 rows")
def positions_of_one_row_fit_any_dimension():
    """Cut along dimension 1 the results are right too; what was meant is a row for each sample."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(20, 4), nn.Embedding(10, 4)

        def forward(self, ids, positions):
            return self.words(ids) + self.places(positions)

    return Model(), {"ids": torch.arange(40).reshape(8, 5) % 20, "positions": torch.arange(5)[None]}


@trigger("DP212", "made for the whole batch")
def a_state_is_made_by_the_batch_size_of_the_settings():
    class Model(Recurrent):
        batch_size = 8

        def forward(self, x):
            self.rnn.flatten_parameters()
            state = torch.zeros(1, self.batch_size, 5, device=x.device)
            return self.rnn(x, (state, state))[0]

    return Model(), steps()


@trigger("DP206", "`batch['scale']` is a tensor of shape ()")
def a_number_without_dimensions_lies_in_a_dict():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch["x"]) * batch["scale"]

    return Model(), ({"x": x(), "scale": torch.tensor(2.0)},)


class Masking(nn.Module):
    """A recurrent layer that is time first or not, and a mask that is batch first."""

    def __init__(self, *, batch_first):
        super().__init__()
        self.rnn = nn.GRU(4, 5, batch_first=batch_first)

    def forward(self, x, mask):
        self.rnn.flatten_parameters()
        own = mask if self.rnn.batch_first else mask.t()
        return (self.rnn(x)[0] * own[..., None]).sum(int(self.rnn.batch_first))


def shown(rows, length):
    return (torch.arange(length) < torch.arange(1, rows + 1)[:, None]).float()


@trigger("DP216", "`x` has the batch on dimension 1 and `mask` on dimension 0")
def a_mask_is_batch_first_and_the_words_are_not():
    return Masking(batch_first=False), (steps().transpose(0, 1), shown(8, 6))


@trigger("DP216", "`x` has the batch on dimension 1 and `lengths` on dimension 0")
def lengths_stand_beside_words_that_are_time_first():
    class Model(Recurring):
        def forward(self, x, lengths):
            mask = torch.arange(len(x), device=x.device)[:, None] < lengths
            return (super().forward(x) * mask[..., None]).sum(0) / lengths[:, None]

    return Model(), (torch.cat([steps(), steps()[:, :2]], 1).transpose(0, 1), torch.arange(1, 9))


@twin("DP216")
def words_and_mask_are_batch_first():
    return Masking(batch_first=True), (steps(), shown(8, 6))


@trigger("DP206", "`step` is a tensor of shape ()")
def a_step_without_dimensions_is_needed_as_a_tensor():
    class Model(Net):
        def forward(self, x, step):
            steps = step.float().reshape(-1, 1)
            return self.fc(x) + torch.cat([steps.sin(), steps.cos(), steps], 1)

    return Model(), (x(), torch.tensor(7))


@trigger("DP206", "`lengths` is a tensor of shape (8,)", dim=1)
def lengths_have_no_second_dimension():
    class Model(Net):
        def forward(self, x, lengths):
            return self.fc(x) * lengths.view(1, -1, 1)

    return Model(), (torch.ones(6, 8, 4), torch.arange(8))


@twin("DP206", dim=1)
def lengths_have_a_second_dimension():
    class Model(Net):
        def forward(self, x, lengths):
            return self.fc(x) * lengths.view(1, -1, 1)

    return Model(), (torch.ones(6, 8, 4), torch.arange(8)[None])


@trigger("DP207", "`captions` (a list of 8 lists)")
def captions_of_unequal_length_go_to_every_replica():
    class Model(Net):
        def forward(self, x, captions):
            longest = max(map(len, captions))
            rows = [[*row, *[0] * (longest - len(row))] for row in captions]
            return self.fc(x) + torch.tensor(rows, device=x.device).sum(1, keepdim=True)

    return Model(), (x(), [[1, 2], [3], [4, 5, 6], [7], [8, 9], [1], [2, 3], [5]])


@trigger("DP206", "`temperature` is a tensor of shape ()")
def a_temperature_is_a_tensor_without_dimensions():
    """As a number beside arguments by position it would leave replicas without them: DP203."""

    class Model(Net):
        def forward(self, x, temperature):
            return self.fc(x) / temperature

    return Model(), (x(), torch.tensor(4.0))


@trigger("DP207", "`rows` (ndarray of 8) is not cut")
def forward_makes_a_tensor_of_an_array_in_a_type_of_its_own():
    class Model(Net):
        def forward(self, rows):
            if not torch.is_tensor(rows):
                rows = torch.as_tensor(rows, dtype=torch.float32)
            return self.fc(rows.to(self.fc.weight.device))

    return Model(), (x().double().numpy(),)


@trigger("DP209", "`the result`", "defaultdict", "gather")
def heads_are_collected_in_a_defaultdict():
    class Model(Net):
        def forward(self, x):
            found = collections.defaultdict(list)
            found["y"].append(self.fc(x))
            return found

    return Model(), x()


@trigger("DP210", "`image`", "chunk 0 only")
def an_image_is_normalised_in_place():
    class Model(Net):
        def forward(self, image):
            image -= 0.5
            image /= 0.25
            return self.fc(image)

    return Model(), x().cuda()


@trigger("DP205", "`rel`", "when each gets it whole")
def a_matrix_by_keyword_has_more_rows_than_a_short_batch_chunks():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, rel=None):
            h = self.fc(x)
            return h if rel is None else h @ rel

    return Model(), ((x(16),), {"rel": torch.eye(4)})


@trigger("DP206", "`guidance` is a tensor of shape ()")
def a_guidance_is_a_tensor_without_dimensions_by_keyword():
    """As a number it would leave replicas without `x`: that is no other cause."""

    class Model(Net):
        def forward(self, x, t, guidance=None):
            y = self.fc(x) * t[:, None]
            return y if guidance is None else y * guidance

    return Model(), ((x(16), torch.ones(16)), {"guidance": torch.tensor(7.5)})


@trigger("DP207", "`rows` (ndarray of 8) is not cut")
def forward_takes_an_array_from_numpy():
    class Model(Net):
        def forward(self, rows):
            return self.fc(torch.from_numpy(rows).float().to(self.fc.weight.device))

    return Model(), (x().double().numpy(),)


class Prototypes(Net):
    """Compares queries with the means of a support set of a size of its own."""

    def forward(self, x, support, labels):
        means = torch.stack([self.fc(support[labels == one]).mean(0) for one in range(3)])
        return -torch.cdist(self.fc(x), means)


@trigger("DP205", "`support` and `labels` are cut into chunks with the batch", also=["DP213"])
def more_arguments_have_another_size_than_have_that_of_the_batch():
    return Prototypes(), lambda rows: (torch.randn(rows, 4), torch.randn(9, 4), torch.arange(9) % 3)


@trigger("DP201", "`pair[1]` has 2 of 32 rows")
def a_part_of_a_tuple_belongs_to_the_whole_batch():
    class Model(Net):
        def forward(self, pair):
            values, shifts = pair
            return self.fc(values) + shifts.sum()

    return Model(), lambda rows: ((torch.randn(rows, 4), torch.tensor([1.0, 2.0])),)


@trigger("DP205", "`rows` has 40 rows and the batch 32")
def an_argument_numbers_rows_of_the_batch():
    class Model(Net):
        def forward(self, x, rows):
            return self.fc(x)[rows]

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(40) % rows)
