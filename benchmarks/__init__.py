"""softbench against what people would use in its place, on the same model, data and dtype: `make bench`."""
