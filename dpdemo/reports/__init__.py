"""Every result as frozen, torch-free data: rooms that compute make them, renderers only read them."""
