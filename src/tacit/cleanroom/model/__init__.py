"""The platform's conversion model, its gated adapters, and the derivatives that it sends to rooms (torch).

settings, batches, examples   what a model is made of and what it reads
network                       embedding -> sequence -> interaction -> towers; linear: layers that take adapters
adapters, derivatives         low-rank changes for one advertiser, and how each logit depends on them
learning, saving              pre-training and tuning in one process; safetensors on disk
"""
