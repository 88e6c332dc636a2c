"""Several processes that compute one run: who they are, and what they exchange."""
