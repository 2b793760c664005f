"""What is printed as a repair, where more than one could be thought of."""

from pathlib import Path

import cases
import pytest
from test_rules import report_on

REPAIRS = {
    "right_answers_are_counted": "scalar = model(x, labels)[1].sum()",
    "a_step_without_dimensions_is_needed_as_a_tensor": "model(x, step=step.expand(len(x)))",
    "lengths_have_no_second_dimension": (
        "model(x, lengths=lengths.unsqueeze(0))   # and in forward: lengths[0]"
    ),
    "a_property_gives_the_device_of_the_first_parameter": "return self.fc.weight.device",
    "what_a_layer_returns_is_returned_as_it_is": (
        "result = self.rnn(x)\nreturn result[0], tuple(part.transpose(0, 1) for part in result[1])"
        "   # and back outside"
    ),
    "two_ways_to_read_the_same_pairs": (
        "return image, text\n# outside, on what is gathered:\n# image, text = model(a, b)\n"
        "# logits = image @ text.t()\n# result = logits, logits.t()"
    ),
    "inference_mode_stands_above_forward": "torch.no_grad()",
    "a_critic_is_clipped_in_forward": (
        "return self.critic(x)\n# outside, after the call:\n# result = model(x)\n"
        "# model.module.critic[0].weight.data.clamp_(-0.01, 0.01)"
    ),
    "a_child_holds_the_module_around_it": (
        "self.child(..., self)   # handed over at each call by the forward around it, and not kept"
    ),
    "a_helper_makes_its_tensor_on_the_device_of_self": ("return torch.ones(3, device=self.fc.weight.device)"),
    "a_part_of_a_method_is_kept": (
        "self.act = functools.partial(type(self).scaled, by=2.0)   # and in forward: self.act(self, ...)"
    ),
    "a_patched_forward": (
        'model.__class__ = type("Patched", (type(model),), {"forward": lambda self, x: self.fc(x) * 2})'
    ),
    "features_are_collected_in_a_loop": (
        "features = []   # of each call\nfor stage in self.stages:\n    x = stage(x).relu()\n"
        "    features.append(x)\nreturn x, features"
    ),
    "each_layer_is_clipped_in_a_loop": (
        "return self.head(self.fc(x))\n# outside, after the call:\n# result = model(x)\n"
        "# for layer in (model.module.fc, model.module.head):\n"
        "#     layer.weight.data.clamp_(-0.05, 0.05)"
    ),
    "a_loop_is_left_where_a_chunk_is_sure": (
        "pass   # every replica goes on to the end; choose among them outside"
    ),
    "forward_returns_early_where_a_chunk_is_sure": (
        "pass   # every replica goes on to the end; choose among them outside"
    ),
    "a_cache_of_masks_knows_lengths_and_no_gpus": (
        "if (length, device) not in self.masks:\n"
        "    self.masks[(length, device)] = torch.ones(length, device=device)\n"
        "return self.masks[(length, device)]"
    ),
    "an_attribute_is_wrapped_within": "self.encoder = nn.Linear(4, 3)",
    "a_method_of_what_is_wrapped_is_called": (
        'return self.net(x, mode="predict")   # and forward(..., mode) goes to predict'
    ),
    "forward_makes_a_tensor_of_an_array_in_a_type_of_its_own": (
        "model(rows=torch.as_tensor(rows, dtype=torch.float32))"
    ),
    "forward_takes_an_array_from_numpy": (
        "model(rows=torch.from_numpy(rows).float())   # here, and not in forward"
    ),
    "heads_are_collected_in_a_defaultdict": "return dict(found)",
    "an_image_is_normalised_in_place": "image = image.clone()\nimage -= 0.5",
    "a_temperature_is_a_tensor_without_dimensions": "model(x=x, temperature=temperature.item())",
    "the_share_of_right_answers_is_a_number": "accuracy = (logits.argmax(-1) == labels).float()",
    "an_object_on_self_holds_the_model": (
        "self.strategy(self, ...)   # in forward: what it needs is handed over at each call, and not kept"
    ),
    "the_type_of_a_body_is_asked_for": "dtype = self.body[0].weight.dtype",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REPAIRS)
def test_the_repair_fits_what_was_found(name):
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == name)
    found = [one.own_after for one in report_on(case).findings if one.code == case.code]
    assert found == [REPAIRS[name]]


@pytest.mark.filterwarnings("ignore")
def test_a_norm_is_shown_where_it_is_made():
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == "a_class_makes_its_norm")
    (found,) = (one for one in report_on(case).findings if one.code == "DP306")
    line = Path(found.place.file).read_text().splitlines()[found.place.line - 1]
    assert line.strip() == f"self.norm = {found.own_before}"
