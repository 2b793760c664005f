"""What is printed as a repair, where more than one could be thought of."""

from pathlib import Path

import cases
import pytest
from test_rules import report_on

REPAIRS = {
    "right_answers_are_counted": "model(x, labels)[1].sum()",
    "a_step_without_dimensions_is_needed_as_a_tensor": "model(x, step=step.expand(len(x)))",
    "lengths_have_no_second_dimension": "model(x, lengths=lengths.unsqueeze(0))",
    "a_property_gives_the_device_of_the_first_parameter": "return self.fc.weight.device",
    "what_a_layer_returns_is_returned_as_it_is": (
        "result = self.rnn(x)\nreturn result[0], tuple(part.transpose(0, 1) for part in result[1])"
    ),
    "two_ways_to_read_the_same_pairs": "return image, text",
    "inference_mode_stands_above_forward": "torch.no_grad()",
    "a_critic_is_clipped_in_forward": "return self.critic(x)",
    "a_child_holds_the_module_around_it": "self.child.around = [self]\nreturn self.child(x)",
    "a_helper_makes_its_tensor_on_the_device_of_self": ("return torch.ones(3, device=self.fc.weight.device)"),
    "a_part_of_a_method_is_kept": "# act is a property",
    "a_patched_forward": (
        'model.__class__ = type("Patched", (type(model),), {"forward": lambda self, x: self.fc(x) * 2})'
    ),
    "features_are_collected_in_a_loop": (
        "features = []   # of each call\nfor stage in self.stages:\n    x = stage(x).relu()\n"
        "    features.append(x)\nreturn x, features"
    ),
    "each_layer_is_clipped_in_a_loop": "return self.head(self.fc(x))",
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
    "a_method_of_what_is_wrapped_is_called": 'return self.net(x=x, mode="predict")',
    "forward_makes_a_tensor_of_an_array_in_a_type_of_its_own": (
        "model(rows=torch.as_tensor(rows, dtype=torch.float32))"
    ),
    "forward_takes_an_array_from_numpy": "model(rows=torch.from_numpy(rows).float())",
    "heads_are_collected_in_a_defaultdict": "return dict(found)",
    "an_image_is_normalised_in_place": "image = image.clone()\nimage -= 0.5",
    "a_temperature_is_a_tensor_without_dimensions": "model(x=x, temperature=temperature.item())",
    "the_share_of_right_answers_is_a_number": "return labels, logits",
    "an_object_on_self_holds_the_model": "# strategy is a property",
    "a_wrapper_of_the_users_opens_autocast": (
        '@torch.autocast("cuda", dtype=torch.bfloat16)\ndef forward(self, x):'
    ),
    "the_type_of_a_body_is_asked_for": "dtype = self.body[0].weight.dtype",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REPAIRS)
def test_the_repair_fits_what_was_found(name):
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == name)
    found = [one.own_after for one in report_on(case).findings if one.code == case.code]
    assert found == [REPAIRS[name]]


AROUND = {
    "two_ways_to_read_the_same_pairs": (
        "image, text = model(a, b)\nlogits = image @ text.t()\nresult = logits, logits.t()"
    ),
    "a_critic_is_clipped_in_forward": (
        "model.module.critic[0].weight.data.clamp_(-0.01, 0.01)\nresult = model(x)"
    ),
    "each_layer_is_clipped_in_a_loop": (
        "for layer in (model.module.fc, model.module.head):\n    layer.weight.data.clamp_(-0.05, 0.05)\n"
        "result = model(x)"
    ),
    "distances_are_taken_to_prototypes_that_have_just_moved": (
        "z, y = model(x, y)\nfor k in range(2):\n"
        "    model.module.protos[k] = 0.9 * model.module.protos[k] + 0.1 * z[y == k].sum(0).detach()\n"
        "result = -torch.cdist(z, model.module.protos)"
    ),
    "the_share_of_right_answers_is_a_number": (
        "labels, logits = model(x, labels)\n"
        "accuracy = (logits.argmax(-1) == labels).float().mean().item()\nresult = logits, accuracy"
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AROUND)
def test_the_lines_around_the_call_fit_too(name):
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == name)
    (found,) = (one for one in report_on(case).findings if one.code == case.code)
    assert [one.after for one in found.also] == [AROUND[name]]


@pytest.mark.filterwarnings("ignore")
def test_a_norm_is_shown_where_it_is_made():
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == "a_class_makes_its_norm")
    (found,) = (one for one in report_on(case).findings if one.code == "DP306")
    line = Path(found.place.file).read_text().splitlines()[found.place.line - 1]
    assert line.strip() == found.own_before


@pytest.mark.filterwarnings("ignore")
def test_a_group_norm_keeps_what_it_has_in_common_and_takes_any_number_of_channels():
    name = "norms_have_arguments_and_a_single_channel"
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == name)
    (found,) = (one for one in report_on(case).findings if one.code == "DP306")
    assert found.own_after == "self.norm = nn.GroupNorm(1, 3, affine=False)"
    assert [one.after for one in found.also] == ["self.last, self.end = nn.Linear(3, 1), nn.GroupNorm(1, 1)"]


FURTHER = {
    "lengths_have_no_second_dimension": ["lengths = lengths[0]\nreturn self.fc(x) * lengths.view(1, -1, 1)"],
    "forward_takes_an_array_from_numpy": ["return self.fc(rows.float().to(self.fc.weight.device))"],
    "a_part_of_a_method_is_kept": [
        (
            "@property\ndef act(self):\n    return functools.partial(self.scaled, by=2.0)\n\n"
            "def forward(self, x):"
        )
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FURTHER)
def test_a_repair_in_two_places_has_both(name):
    case = next(case for case in cases.TRIGGERS if case.factory.__name__ == name)
    (found,) = (one for one in report_on(case).findings if one.code == case.code)
    assert [one.after for one in found.also] == FURTHER[name]
    assert all(one.place is not None for one in found.also)
