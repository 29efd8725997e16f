"""Scripts that developers run by hand; each says how in its docstring."""
