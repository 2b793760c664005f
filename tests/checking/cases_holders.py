"""Rules of modules that a model holds among other things, and registers by other names: DP304."""

import weakref

import torch
from casetable import Net, trigger, twin, x


class Applied:
    """Holds a function, or is one by a method."""

    def __init__(self, function=None):
        self.function = function
        self.scale = torch.ones(3, device="cuda:0") if function is None else 1

    def scaled(self, y):
        return y * self.scale


@trigger("DP304", "`applied` is a list or attribute", "as `function` of an Applied")
class AnObjectHoldsAFunctionThatLeadsToTheModel(Net):
    def __init__(self):
        super().__init__()
        self.applied = Applied(lambda x: self.fc(x))  # noqa: PLW0108 - as users write

    def forward(self, x):
        return self.applied.function(x)


@trigger("DP302", "`scaled` is the bound method scaled that holds a tensor of shape (3,)", raises=True)
class AMethodOfAnObjectHoldsATensor(Net):
    def __init__(self):
        super().__init__()
        self.scaled = Applied().scaled

    def forward(self, x):
        return self.scaled(self.fc(x))


def keyed(make_key, *, weak=False, get=False):
    """Make a model that scales what a layer gives by a number that it finds by the layer."""

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.gain = (weakref.WeakKeyDictionary if weak else dict)({make_key(self): 2.0})

        def forward(self, x):
            key = make_key(self)
            return self.fc(x) * (self.gain.get(key, 1.0) if get else self.gain[key])

    return Model()


@trigger("DP304", "`gain` is keyed by a parameter or buffer of the model", raises=True)
def a_number_is_found_by_a_weight():
    return keyed(lambda model: model.fc.weight), x()


@trigger("DP304", "`gain` is keyed by the `id` of a module")
def a_number_is_not_found_by_the_id_of_a_layer():
    return keyed(lambda model: id(model.fc), get=True), x()


@twin("DP304")
class NamesOfLayersThatForwardDoesNotLookUp(Net):
    def __init__(self):
        super().__init__()
        self.names = {module: name for name, module in self.named_modules()}
        self.order = {id(one): number for number, one in enumerate(self.parameters())}

    def forward(self, x):
        return self.fc(x)
