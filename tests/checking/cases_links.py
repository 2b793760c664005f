"""Rules of what ties a replica to its original: DP302 to DP391."""

import copy
import threading
import warnings

import torch
from casetable import Linear, Net, trigger, twin, x
from torch import nn


@trigger("DP302", "`scale` is a tensor of shape (3,) on cuda:0", raises=True)
class APlainTensorStaysOnGpu0(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(3, device="cuda:0")

    def forward(self, x):
        return self.fc(x) * self.scale


@twin("DP302")
class APlainTensorIsMovedWhereItIsUsed(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(3)

    def forward(self, x):
        return self.fc(x) * self.scale.to(x.device)


@trigger("DP303", "zeros to cuda:0", raises=True)
class ATensorIsMadeOnAFixedGpu(Net):
    def forward(self, x):
        return self.fc(x) + torch.zeros(3, device="cuda:0")


@trigger("DP303", "to to cuda:0", raises=True)
class AnInputIsMovedToTheDeviceOfSelf(Net):
    def __init__(self):
        super().__init__()
        self.device = torch.device("cuda:0")

    def forward(self, x):
        return self.fc(x.to(self.device))


@trigger("DP303", "cuda to cuda:0")
class AResultTakesADetourOverGpu0(Net):
    def forward(self, x):
        return self.fc(x).cuda(0).to(x.device)


@twin("DP303")
class ATensorIsMadeWhereTheInputIs(Net):
    def forward(self, x):
        return self.fc(x) + torch.zeros(3, device=x.device) + torch.zeros(3, device="cuda")


@twin("DP304")
class LayersInAModuleList(Net):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.name = "_impl"

    def _impl(self, x):
        return self.layers[0](self.fc(x))

    def forward(self, x):
        return getattr(self, self.name)(x)


@trigger("DP308", "parameters()` is empty", "StopIteration", raises=True)
class TheFirstParameterIsAskedForItsDevice(Net):
    def forward(self, x):
        return self.fc(x.to(next(self.parameters()).device))


@twin("DP308")
class WeightsAreAskedByName(Net):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.ones(3), torch.ones(3)])

    def forward(self, x):
        return self.fc(x.to(self.fc.weight.device)) * sum(self.scales) + self.fc.weight.square().sum()


@twin("DP308")
class ParametersAreAskedForWithAWayOut(Net):
    """As in the transformers library."""

    def forward(self, x):
        first = next(self.parameters(), None)
        return self.fc(x if first is None else x.to(first.dtype))


@trigger("DP310", "the hook `keep` on `fc` runs 4 times")
def a_hook_keeps_features():
    model = Linear()
    features = {}

    def keep(module, args, output):
        features["fc"] = output

    model.fc.register_forward_hook(keep)
    return model, x()


@twin("DP310", also=["DP310"])
def hooks_keep_nothing_that_they_see():
    """One returns another output, one raises, and one clips gradients: a note."""

    def guard(module, args, output):
        if torch.isnan(output).any():
            raise RuntimeError("not a number")

    def ask_for_gradients(module, args, output):
        output.requires_grad_(True)

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    model[0].register_forward_hook(lambda module, args, output: output * 0.5)
    model[1].register_forward_hook(guard)
    model[1].register_full_backward_hook(lambda module, given, got: tuple(one.clamp(-9, 9) for one in given))
    model[1].register_forward_hook(ask_for_gradients)
    return model, x()


@trigger("DP310", "the hook `<lambda>` on `fc` runs 4 times")
def a_hook_hands_its_output_to_a_function():
    """Which may keep it."""
    kept = {}
    model = Linear()
    model.fc.register_forward_hook(lambda module, args, output: kept.update(fc=output))
    return model, x()


@trigger("DP312", "cannot be deep-copied", raises=True)
class ALayerIsCopiedInForward(Net):
    def forward(self, x):
        return copy.deepcopy(self.fc)(x)


@twin("DP312")
class ALayerIsCalledWithOtherWeights(Net):
    def forward(self, x):
        weights = {"weight": self.fc.weight * 2, "bias": self.fc.bias}
        return torch.func.functional_call(self.fc, weights, (x,))


@trigger("DP314", "`fc.weight` (attribute tag)", "plain tensor", raises=True)
class AParameterHasAnAttribute(Net):
    def __init__(self):
        super().__init__()
        self.fc.weight.tag = 2.0

    def forward(self, x):
        return self.fc(x) * self.fc.weight.tag


@twin("DP314")
class AModuleHasTheAttribute(Net):
    def __init__(self):
        super().__init__()
        self.tag = 2.0
        self.fc.weight.unused = True

    def forward(self, x):
        return self.fc(x) * self.tag


@trigger("DP390", "replica 0 raises AssertionError: a whole batch", raises=True)
class ForwardInsistsOnAWholeBatch(Net):
    def forward(self, x):
        assert len(x) != 2, "a whole batch"
        return self.fc(x)


@twin("DP390")
class ForwardTakesAnyBatch(Net):
    def forward(self, x):
        assert len(x), "a batch"
        return self.fc(x)


SCALE = []


@trigger("DP391", "replica 1", "cuda:0")
def a_global_tensor_is_on_gpu_0():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) * SCALE[-1]

    SCALE.append(torch.ones(3, device="cuda:0"))
    return Model(), x()


@twin("DP391")
def a_global_tensor_is_moved():
    class Model(Net):
        def forward(self, x):
            return self.fc(x) * SCALE[-1].to(x.device)

    SCALE.append(torch.ones(3, device="cuda:0"))
    return Model(), x()


class ScaleOfAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ScaleOfAll.saved = x, scale
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ScaleOfAll.saved
        return grad * scale, (grad * x).sum(0)


class ScaleOfOne(ScaleOfAll):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return grad * scale, (grad * x).sum(0)


class Scaled(Net):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.function.apply(self.fc(x), self.scale)


@trigger("DP390", "backward raises RuntimeError", "two devices", "not on one GPU")
def a_function_keeps_what_backward_needs_on_its_class():
    return Scaled(ScaleOfAll), x()


@twin("DP390")
def a_function_keeps_what_backward_needs_in_its_context():
    return Scaled(ScaleOfOne), x()


# ---- what failed has another name in the line that failed ----


@twin("DP304", also=["DP310"])
def a_hook_closes_over_a_module_and_works():
    """The hook calls a part of the model: in a copy that of the copy."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)).to("cuda:0")
    head = model[1]

    def penalise(module, args, output):
        assert head.weight.device.type == "cuda"

    model[0].register_forward_hook(penalise)
    return model, x()


class Capturing(Net):
    """As models of transformers 5: hooks for the outputs of layers are put in at the first call."""

    def __init__(self):
        super().__init__()
        self.installed = False

    def forward(self, x):
        kept = []
        if not self.installed:
            self.fc.register_forward_hook(lambda module, args, output: HIDDEN.kept.append(output))
            self.installed = True
        HIDDEN.kept = kept
        return {"y": self.fc(x), "hidden": tuple(kept)}


HIDDEN = threading.local()


@trigger("DP317", "`fc`", "1 after a call on one GPU", also=["DP310", "DP408"])
def hooks_are_put_in_at_the_first_call():
    return Capturing(), x()


@trigger("DP317", "forward puts a hook into a Linear", "runs in the others too")
class AHookIsThereForOneCall(Net):
    def forward(self, x):
        kept = []
        handle = self.fc.register_forward_hook(lambda module, given, result: kept.append(result.tanh()))
        result = self.fc(x)
        handle.remove()
        return result + kept[0]


@twin("DP317", also=["DP317"])
def a_hook_that_is_there_for_one_call_only_looks():
    def look(module, given, result):
        assert result.isfinite().all()

    class Model(Net):
        def forward(self, x):
            handle = self.fc.register_forward_hook(look)
            result = self.fc(x)
            handle.remove()
            return result

    return Model(), x()


@twin("DP317", also=["DP310"])
def hooks_are_put_in_before_wrapping():
    model = Capturing()
    model(x())
    return model, x()


@twin("DP103")
class APartWasMovedAndNoWrapperIsThereYet(Linear):
    def __init__(self):
        super().__init__()
        self.head = nn.ModuleList([nn.Linear(3, 2).to("cuda:0")])

    def forward(self, x):
        return self.head[0](super().forward(x))


class Equalized:
    """Scales a layer's weight before each call, and puts it on the module that it is given."""

    def __init__(self, scale):
        self.scale = scale

    def scaled(self, module):
        return module.weight_orig * self.scale

    def __call__(self, module, args):
        module.weight = self.scaled(module)


@twin("DP310", also=["DP310"])
class AHookPutsAScaledWeightOnItsModule(Net):
    def __init__(self):
        super().__init__()
        weight = self.fc.weight
        del self.fc._parameters["weight"]
        self.fc.register_parameter("weight_orig", weight)
        self.fc.weight = weight.detach()
        self.fc.register_forward_pre_hook(Equalized(0.5))

    def forward(self, x):
        return self.fc(x)


@trigger("DP304", "`layers` is a list or attribute with a Linear")
class LayersInAList(Net):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(3, 3, device="cuda:0")]

    def forward(self, x):
        return self.layers[0](self.fc(x))


@trigger("DP304", "`fc._compiled_call_impl`: a compiled forward is the original's")
def a_layer_is_compiled():
    model = Linear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # virtual GPUs compile nothing
        model.fc.compile(backend="eager")
    return model, x()


@trigger("DP302", "`kept` holds a parameter or buffer of the model", raises=True)
class AWeightIsHeldInATuple(Net):
    def __init__(self):
        super().__init__()
        self.kept = (self.fc.weight,)

    def forward(self, x):
        return nn.functional.linear(x, self.kept[0])


class Configured(Net):
    def __new__(cls, rows):
        return super().__new__(cls)

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, x):
        return self.fc(x)


@trigger("DP390", "a replica cannot be made", raises=True)
def a_class_cannot_be_made_without_an_argument():
    return Configured(8), x()


@trigger("DP312", "cannot be deep-copied", raises=True)
class AWeightIsCopiedInForward(Net):
    def forward(self, x):
        old = copy.deepcopy(self.fc.weight)
        return nn.functional.linear(x, old) + self.fc(x)


@twin("DP302")
class ATiedWeightIsUsedByItsName(Linear):
    def forward(self, x):
        return nn.functional.linear(self.fc(x), self.fc.weight.t())
