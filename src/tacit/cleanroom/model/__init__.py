"""The platform's conversion model, its gated adapters, and the derivatives that it sends to rooms (torch).

`settings`, `examples`      what a model is made of and what it reads
`frames`                    a table of any library as examples
`layers`, `network`         embedding -> sequence -> interaction -> towers; the model and its files
`adapters`, `derivatives`   low-rank changes for one advertiser, and how each logit depends on them
`learning`                  pre-training and tuning in one process
"""
