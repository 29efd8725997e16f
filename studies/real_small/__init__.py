"""Two real models on nine real benchmarks: what of the paper's claims shows on models that two cores can run.

`python -m studies.real_small` runs it and writes findings.json and tables.md. The models are what is to be had from a
package registry: a base model and a post-trained one of different families, so that claim (d), which ranks pairs of
models, is left to the laboratory.
"""
