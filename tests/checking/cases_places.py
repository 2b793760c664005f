"""Pitfalls whose repair stands in several places: the call and forward, `__init__` and a property."""

import functools
import types
import weakref
from typing import NamedTuple

import torch
from casetable import Net, Recurrent, steps, trigger, twin, x
from torch import nn

# ---- arguments: the call, and forward's first line ----


class Weighing(Net):
    def forward(self, x, weights=None):
        """Scale classes, where there are weights."""
        y = self.fc(x)
        return y if weights is None else y * weights


@trigger("DP205", "`weights` is cut into chunks", also=["DP203"])
def weights_of_classes_may_be_left_out():
    return Weighing(), ((x(),), {"weights": torch.tensor([1.0, 2.0, 3.0])})


@trigger("DP205", "`batch['graph']`")
def a_graph_of_joints_lies_in_a_dict():
    class Model(Net):
        def forward(self, batch):
            return self.fc(torch.einsum("vw,bwc->bvc", batch["graph"], batch["x"])).sum(1)

    return Model(), ({"x": torch.ones(8, 6, 4), "graph": torch.eye(6) / 2},)


@trigger("DP201", "`causal` has 1 of 8 rows")
def a_mask_of_one_row_is_taken_out_of_it():
    """With a row for each sample forward would fail."""

    class Model(Net):
        def forward(self, x, causal):
            return self.fc(x.masked_fill(causal.squeeze(0).view(5, 1) == 0, 0.0))

    return Model(), (torch.ones(8, 5, 4), torch.ones(1, 5, 1))


@trigger("DP207", "`prompts` (a list of 8 str)")
def texts_come_by_keyword_only():
    class Model(Net):
        def forward(self, x, *, prompts):
            return self.fc(x) * x.new_tensor([len(one) for one in prompts])[:, None]

    return Model(), {"x": x(), "prompts": [f"image {'i' * i}" for i in range(8)]}


@trigger("DP207", "`labels` (a list of 8 float)")
def numbers_in_a_list_are_used_as_numbers():
    class Model(Net):
        def forward(self, x, labels):
            weights = [1.0 + label.is_integer() for label in labels]  # a tensor has no such method
            return self.fc(x) * x.new_tensor(weights)[:, None]

    return Model(), (x(), [0.1 * i for i in range(8)])


@trigger("DP208", "`data` is a SimpleNamespace that holds x")
def tensors_in_a_namespace_stay_on_gpu_0():
    class Model(Net):
        def forward(self, data):
            return self.fc(data.x) * data.scale

    return Model(), types.SimpleNamespace(x=x(), scale=2.0)


class Condition(NamedTuple):
    text: torch.Tensor
    null: torch.Tensor


@trigger("DP201", "`condition.null` has 1 of 8 rows")
def a_field_of_a_named_tuple_has_one_row():
    class Model(Net):
        def forward(self, x, condition):
            return self.fc(x + condition.text - condition.null)

    return Model(), (x(), Condition(x(), torch.ones(1, 4)))


@trigger("DP205", "`corners` is cut into chunks")
def corners_as_many_as_rows_of_a_short_batch():
    """In a batch of 3 their columns are as many as its rows: the batch is not there all the same."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)

        def forward(self, points, corners):
            low, high = corners
            return self.fc((points - low) / (high - low))

    return Model(), (x()[:, :3], torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))


class Sentence:
    def __init__(self, words, pad):
        self.words = words
        self.shown = (words != pad).float()

    def lengths(self):
        return self.shown.sum(1, keepdim=True)


@trigger("DP208", "`sentence` is a Sentence that holds words")
def an_object_of_a_batch_has_methods():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 3)

        def forward(self, sentence):
            return (self.embed(sentence.words) * sentence.shown[..., None]).sum(1) / sentence.lengths()

    return Model(), Sentence(torch.arange(1, 33).reshape(8, 4) % 9, 0)


class Named(dict):
    def __init__(self, name, **parts):
        super().__init__(**parts)
        self.name = name


@trigger("DP208", "`batch` is a Named, which scatter builds anew without what is in it")
def a_dict_of_another_class_comes_empty():
    class Model(Net):
        def forward(self, batch):
            return self.fc(batch["x"])

    return Model(), (Named("train", x=x()),)


@trigger("DP212", "`h` and `c` have the batch on dimension 1")
def two_states_outnumber_the_batch():
    class Model(Recurrent):
        def forward(self, x, h, c):
            self.rnn.flatten_parameters()
            return self.rnn(x, (h, c))[0]

    return Model(), (steps(), torch.zeros(1, 8, 5), torch.zeros(1, 8, 5))


@twin("DP205")
def weights_come_for_each_sample():
    class Model(Weighing):
        def forward(self, x, weights=None):
            return super().forward(x, weights if weights is None else weights[0])

    return Model(), (x(), torch.tensor([1.0, 2.0, 3.0]).expand(8, -1))


@twin("DP207")
def texts_come_with_the_numbers_of_rows():
    class Model(Net):
        def forward(self, x, texts, rows=None):
            texts = texts if rows is None else [texts[row] for row in rows.tolist()]
            return self.fc(x) * x.new_tensor([len(one) for one in texts])[:, None]

    texts = [f"image {'i' * i}" for i in range(8)]
    return Model(), {"x": x(), "texts": texts, "rows": torch.arange(8)}


# ---- what `__init__` keeps: there, and a property ----


@trigger("DP302", "`stats`")
def tensors_in_a_dict_stay_on_gpu_0():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.stats = {
                "mean": torch.zeros(4, device="cuda:0"),
                0: torch.ones(4, device="cuda:0"),
            }

        def scaled(self, x):
            return (x - self.stats["mean"]) / self.stats[0]

        def forward(self, x):
            return self.fc(self.scaled(x))

    return Model(), x()


@trigger("DP304", "`heads` is a list or attribute with a Linear")
def heads_have_numbers_in_a_dict():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.heads = {task: nn.Linear(3, 2).to("cuda:0") for task in range(2)}

        def forward(self, x):
            return [self.heads[task](self.fc(x)) for task in sorted(self.heads)]

    return Model(), x()


class Layer(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = weakref.ref(net)

    def forward(self, x):
        return x * self.net().fc.bias


@twin("DP302")
def a_property_joins_buffers():
    class Model(Net):
        def __init__(self):
            super().__init__()
            tables = [torch.arange(3), torch.arange(3).flip(0)]
            for index, value in enumerate(tables):
                self.register_buffer(f"tables_{index}", value, persistent=False)
            self.tables_count = len(tables)

        @property
        def tables(self):
            return [getattr(self, f"tables_{index}") for index in range(self.tables_count)]

        def forward(self, x):
            y = self.fc(x)
            return sum(y[:, table] for table in self.tables)

    return Model(), x()


@twin("DP304")
def a_property_makes_a_part_of_a_method():
    class Model(Net):
        @property
        def act(self):
            return functools.partial(self.scaled, by=2.0)

        def scaled(self, x, by):
            return self.fc(x) * by

        def forward(self, x):
            return self.act(x)

    return Model(), x()


# ---- what lies outside of the model, or is the original's ----


@trigger("DP310", "the hook `keep` on `fc` runs 4 times")
def forward_reads_what_a_hook_has_kept():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.kept = None
            self.fc.register_forward_hook(self.keep)

        def keep(self, module, args, output):
            self.kept = output

        def forward(self, x):
            y = self.fc(x)
            return y, self.kept.mean(1)

    return Model(), x()


@trigger("DP391", "replica 1", "cuda:0")
def a_default_is_on_gpu_0():
    class Model(Net):
        def forward(self, x, scale=torch.ones(3, device="cuda:0")):  # noqa: B008 - the pitfall
            return self.fc(x) * scale

    return Model(), x()


@trigger("DP391", "replica 1", "cuda:0")
def a_tensor_around_the_class_gets_another_name():
    scales = [torch.ones(3, device="cuda:0")]

    class Model(Net):
        def forward(self, x):
            scale = scales[0]
            return self.fc(x) * scale

    return Model(), x()


ROWS = 8


@trigger("DP390", "cannot be multiplied", data_size=64)
def a_batch_size_is_a_constant_of_the_file():
    class Model(Net):
        def forward(self, x):
            flat = x.reshape(ROWS, -1)
            return self.fc(flat)

    return Model(), x()
