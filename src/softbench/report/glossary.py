"""The words of a report, each in a sentence or two. docs/metrics.md has the definitions in full."""

GLOSSARY = {
    "format-following": "Share of completions that have exactly the form that the task asks for, up to their end.",
    "accuracy": "Share of samples whose completion has the right form and the right answer: what a benchmark reports.",
    "lenient accuracy": "Share of samples whose completion holds the right answer in the eyes of a forgiving reader, "
    "in whatever form.",
    "choice accuracy": "Share of samples whose right option has the highest log-likelihood of all options. No form is "
    "asked for.",
    "accuracy given format": "Accuracy among the completions in the right form alone: a selected part of the samples, "
    "to be read with its n.",
    "score": "Accuracy, or on tasks where nothing is generated (cloze) the choice accuracy.",
    "interval": "95 % of such intervals hold the value that endless samples would give. Shares have Wilson's.",
    "zero_shot": "The question and the form that is asked for, with no example.",
    "few_shot": "The same behind a few worked examples.",
    "soft_prompt": "The same behind vectors tuned on the benchmark's training split until the frozen model follows the "
    "form (arXiv 2606.12117).",
    "majority": "The commonest answer of the tuning split to every question, without a model.",
    "random_model": "A soft prompt on the same architecture with random weights: what vectors alone can do.",
    "lora": "A low-rank adapter tuned on the same samples (Train-before-Test, arXiv 2507.05195), as a reference.",
    "loaded_prompt": "A soft prompt that was tuned elsewhere, on this task or another one of the same form.",
    "mcf": "Multiple choice, options listed: the model names a letter.",
    "cf": "Cloze: each option's text is scored as a continuation, and the likeliest is chosen.",
    "generation": "The model writes its answer.",
    "log-likelihood": "Natural logarithm of the probability that the model gives a text: nearer to 0 is likelier.",
    "saturated": "From this step on the score's interval holds its value at the last step.",
    "Kendall's tau": "Agreement of two rankings: 1 where all pairs of models stand in the same order, -1 where none "
    "does.",
    "trainable share": "Tuned numbers over all parameters of the model.",
    "OK": "The completion has the right form.",
    "NO_ANSWER": "The form is not there.",
    "AMBIGUOUS": "Several answers stand in the form.",
    "TRUNCATED": "The completion met the token limit before it ended.",
}
