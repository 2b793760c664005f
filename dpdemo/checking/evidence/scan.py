"""What the model is made of, read without running it."""

from dataclasses import dataclass

from dpdemo.results.findings import Place


@dataclass(frozen=True, slots=True)
class Holding:
    """A thing that a module holds outside its registered parameters, buffers and submodules."""

    path: str
    kind: str
    """tensor, shared, module, holder, callable, outer, named, keyed, container, hook, lazy,
    parameter or compiled."""
    type: str = ""
    """The class of what is held; of a hook or another function its name."""
    shape: tuple[int, ...] = ()
    """Of a tensor."""
    device: str = ""
    """Of a tensor."""
    holder: str = ""
    """What stands between the attribute and a tensor or module: the class of an object, or "a function"."""
    within: str = ""
    """The attribute of that object."""
    leads_to: str = ""
    """Of a function: the module of the model, or the model's tensor, that it holds. Of a dict or set: what of
    the model its keys are."""
    is_pure: bool = False
    """Of a list or dict with a module: whether it holds nothing else."""
    names: tuple[str, ...] = ()
    """Of a parameter: the attributes that it has of its own."""
    place: Place | None = None

    @property
    def name(self) -> str:
        """The last part of its path: the attribute's own name."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Norm:
    """A BatchNorm layer."""

    path: str
    type: str
    channels: int
    place: Place | None = None
    """The line that makes it."""
    is_own: bool = False
    """Whether its class has a forward of its own."""
    is_told: bool = False
    """Whether its class has a method by which a wrapper of its own tells replicas of each other."""
    clamps: bool = False
    """Whether a method of its class clamps something by `eps`."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The parts of a model, as `observing/scan.py` reads them without running it."""

    model: str
    held: tuple[Holding, ...] = ()
    module_types: tuple[tuple[str, str], ...] = ()
    flattens_parameters: bool = True
    forward: Place | None = None
    result: Place | None = None
    """The only `return` of forward; else where it is defined."""
    wrappers: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    """Those wrappers whose parameters are not trained, where others are."""
    device_ids: tuple[int, ...] = ()
    strays: tuple[tuple[str, str], ...] = ()
    is_installed: bool = False
    """Whether its forward is an installed package's, and not the user's to change."""
    is_spread: bool = False
    """Whether parameters are on several GPUs."""
    pads_alone: bool = False
    """Whether it unpacks padded sequences without their whole length."""
    shortened: tuple[tuple[str, Place | None], ...] = ()
    """Embeddings that shorten their rows in forward, and where they are made."""
    is_training: bool = True
    """Whether the model, as it is given, is to be trained."""
    norms: tuple[Norm, ...] = ()
    parameters: tuple[str, ...] = ()
    """The paths of its parameters, which replicas have as attributes."""
    required: tuple[str, ...] = ()
    """The names of forward's arguments without a default."""
    together: tuple[tuple[str, ...], ...] = ()
    """The paths by which several modules hold one container, or one object of the user's."""

    meetings: tuple[str, ...] = ()
    """The paths of containers and objects at which threads can wait for each other."""

    def of_kind(self, *kinds: str) -> tuple[Holding, ...]:
        """List what is held of some kinds."""
        return tuple(held for held in self.held if held.kind in kinds)

    @property
    def can_be_copied(self) -> bool:
        """Whether copies of it can run: those of lazy and TorchScript modules cannot."""
        return not self.of_kind("lazy") and all(name != "ScriptModule" for _, name in self.module_types)
