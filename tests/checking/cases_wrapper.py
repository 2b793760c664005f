"""Rules around the wrapper: DP1."""

import warnings

import torch
from casetable import Head, Linear, Net, trigger, twin, wrapped, x
from torch import nn


@trigger("DP101", "`fc`", "`.module.fc`", raises=True)
def an_attribute_is_read_from_the_wrapper():
    model = wrapped(Net())
    return model.fc, x()


@trigger("DP101", "`out_features`", raises=True)
class ForwardReadsAnAttributeFromAWrapper(Head):
    def forward(self, x):
        return self.net(x) / self.net.out_features


@twin("DP101")
class ForwardReadsAnAttributeFromTheModule(Head):
    def forward(self, x):
        return self.net(x) / self.net.module.out_features


@trigger("DP102", "`module.fc.bias`", "prefix `module.`")
def a_wrappers_state_is_loaded_loosely():
    model = Linear()
    model.load_state_dict(wrapped(Linear()).state_dict(), strict=False)
    return model, x()


@trigger("DP102", "prefix `module.`", raises=True)
def a_wrappers_state_is_loaded():
    model = Linear()
    model.load_state_dict(wrapped(Linear()).state_dict())
    return model, x()


@twin("DP102")
def the_modules_state_is_loaded():
    model = Linear()
    model.load_state_dict(wrapped(Linear()).module.state_dict())
    return model, x()


@trigger("DP103", "`fc.weight` and `fc.bias` on cuda:1", "cuda:0", raises=True)
def a_model_is_on_the_second_gpu():
    return nn.DataParallel(Linear().to("cuda:1"), device_ids=[0, 1]), x()


@trigger("DP103", "`extra` on cpu", raises=True)
def a_parameter_is_added_after_the_move():
    model = Linear().to("cuda:0")
    model.extra = nn.Parameter(torch.zeros(3))
    return nn.DataParallel(model), x()


@twin("DP103")
def a_model_is_on_the_first_gpu_of_its_list():
    return nn.DataParallel(Linear().to("cuda:1"), device_ids=[1, 0]), x()


@trigger("DP104", "Invalid device id", "4 GPUs", raises=True)
def a_gpu_is_named_that_is_not_there():
    return wrapped(Linear(), device_ids=[0, 7]), x()


@trigger("DP104", "list index out of range", raises=True)
def no_gpu_is_named():
    return wrapped(Linear(), device_ids=[]), x()


@trigger("DP104", "cuda:0 is named 2 times")
def a_gpu_is_named_twice():
    return wrapped(Linear(), device_ids=[0, 0]), x()


@twin("DP104")
def three_gpus_are_named():
    return wrapped(Linear(), device_ids=[0, 1, 3]), x(12)


@trigger("DP105", "`net` is a DataParallel that is never called")
class TheWrapperIsBypassed(Head):
    def forward(self, x):
        return self.net.module(x)


@twin("DP105")
def the_wrapper_is_called():
    return Head(), x()


@trigger("DP106", "`module.0` is a DataParallel inside", raises=True)
def a_wrapper_in_a_wrapper():
    inner = nn.DataParallel(nn.Linear(4, 4))
    return wrapped(nn.Sequential(inner, nn.Linear(4, 3))), x(16)


@trigger("DP106", "`module` is a DataParallel inside `DataParallel`", raises=True)
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


@trigger("DP108", "`0.weight` and `0.bias` are not initialised", raises=True)
def a_lazy_layer():
    return nn.Sequential(nn.LazyLinear(3)), x()


@twin("DP108")
def a_lazy_layer_that_was_called_once():
    model = nn.Sequential(nn.LazyLinear(3))
    model(x())
    return model, x()


@twin("DP390")
def a_class_whose_new_can_do_without():
    class Model(Linear):
        def __new__(cls, *args):
            return super().__new__(cls)

        def __init__(self, config):
            super().__init__()

    return Model({}), x()


class Predicting(Linear):
    def forward(self, x, mode="forward"):
        return self.predict(x) if mode == "predict" else self.fc(x)

    def predict(self, x):
        return self.fc(x).softmax(-1)


@trigger("DP105", "`net` is a DataParallel that is never called")
class AMethodOfWhatIsWrappedIsCalled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = wrapped(Predicting())

    def forward(self, x):
        return self.net.module.predict(x)


@trigger("DP101", "DataParallel is used as the model, which is its `.module`")
def the_length_of_a_wrapper_is_asked_for():
    layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    return nn.Sequential(*wrapped(layers)), x()
