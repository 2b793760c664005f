"""What all tests share: hypothesis without deadlines, which slow machines break, and the same examples each run."""

import hypothesis

hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=200)
hypothesis.settings.register_profile("hunt", deadline=None, max_examples=20_000)
hypothesis.settings.load_profile("suite")
