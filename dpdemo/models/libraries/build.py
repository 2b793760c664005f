"""Build the model of a library; only the named library is imported."""

from torch import nn

from dpdemo.errors import UsageError
from dpdemo.models.libraries import Inputs, InputSizes


def make_library_model(library: str, name: str, sizes: InputSizes) -> tuple[nn.Module, Inputs]:
    """Build a library's model with random weights, and the function that makes its inputs.

    Args:
        library: "transformers", "torchvision" or "timm".
        name: the model's name there, such as "gpt2-xl"; of transformers also a path of a config.json.
        sizes: how large the inputs are.

    Raises:
        UsageError: if the library is not installed, or has no such model.

    """
    try:
        if library == "transformers":
            from dpdemo.models.libraries.huggingface import make_model

            return make_model(name, sizes)
        from dpdemo.models.libraries.images import make_image_model

        return make_image_model(library, name, sizes)
    except ImportError as error:
        raise UsageError(
            f"expected {library} to be installed, got {type(error).__name__}: {error}",
            hint=f"pip install {library}",
        ) from error
