"""Settings of the whole suite."""

import torch
from hypothesis import HealthCheck, settings

# Tests are many and tensors tiny: threads only get in each other's way, all the more under pytest-xdist.
torch.set_num_threads(1)

# The first call of a kernel can take longer than any sensible deadline.
settings.register_profile(
    "torchrank", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.load_profile("torchrank")
