"""The laboratory: tiny models pre-trained on a made-up world, so that what each of them knows is known.

    world       people and places with attributes, drawn by a seed; nothing of them is real
    prose       what models are pre-trained on: statements, questions and answers, filler
    tokenizer   one for all models
    recipes     sizes, architectures, and the knobs of the prose
    pretrain    the training loop of base models
    tasks       seven question tasks about facts of the world, in seven answer formats
    posttrain   base models, fine-tuned on the answer formats with facts of other people
    knowledge   what a model knows, without any answer format
    evaluate    softbench on all models
    analysis    what comes out, with intervals
    tables      the same for people

`python -m studies.laboratory` runs all of it, and goes on where it was cut off; `--small` is a form of a minute.
"""
