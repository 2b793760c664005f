"""`dpdemo sweep`: the map, its forms, its files."""

import json


def test_a_sweep_names_the_even_batch_size_of_each_number_of_gpus(dpdemo):
    done = dpdemo("sweep", "--gpus", "4,7", "--batch-size", "16-40")
    assert done.code == 0
    ends = [line.split()[-1] for line in done.out.splitlines() if line.startswith(("   4 ", "   7 "))]
    assert ends == ["32", "28"]
    found = json.loads(dpdemo("sweep", "--gpus", "4", "--near", "7", "--format", "json").out)
    assert (found["near"], found["lines"][0]["nearest_even"]) == (7, 8)
