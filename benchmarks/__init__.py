"""The project's own measurements, with its peers beside it in the same run."""
