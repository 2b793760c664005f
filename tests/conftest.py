"""What all tests share: hypothesis draws the same examples each run, without deadlines for slow machines."""

import hypothesis

hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=200)
hypothesis.settings.load_profile("suite")
