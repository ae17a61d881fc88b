"""The HTTP service around a model folder."""
