"""Engines: what runs a model. `base.Engine` is the seam; `transformers` is the real one, `fake` the one for tests.

Nothing is imported here, as the real engine imports torch.
"""
