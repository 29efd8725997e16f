"""softbench from Python: tune a soft prompt, evaluate with and without it, and run a whole comparison.

python examples/python_api.py MODEL      (a hub id, a model folder or a .gguf file)
"""

import sys

import softbench

model = sys.argv[1]

# One soft prompt, and what it changes on 20 questions.
soft_prompt = softbench.tune(model, "capitals", steps=20)
before = softbench.evaluate(model, "capitals", limit=20)
after = softbench.evaluate(model, "capitals", limit=20, soft_prompt=soft_prompt)
for name, job in (("zero-shot", before), ("soft prompt", after)):
    print(name, "format", job.metrics["format_following"].value, "accuracy", job.metrics["accuracy"].value)

# The same samples one by one.
record = after.records[0]
print(record.prompt.text, "->", record.completion.text if record.completion else None, record.status)

# Everything at once: results in OUT/<model>, resumed where they are whole.
for results in softbench.run([model], ["capitals"], ["zero_shot", "few_shot"], num_fewshot=2, limit=20):
    print(results.path)
