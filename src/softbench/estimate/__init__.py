"""What a run will take, before it is started: tokens, operations, GPU hours, memory, disk.

    spec -> the pipeline's own plan, methods and prompts   forecast.py
         -> an engine and tuners that count                counting.py
         -> sizes of models, data of tasks                 sizes.py, data.py
         -> tables                                         tables.py

No weights are loaded and no data fetched: what is not at hand is assumed, and the estimate says so.
"""

from softbench.estimate.forecast import Forecast, estimate

__all__ = ["Forecast", "estimate"]
