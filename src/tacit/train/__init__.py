"""Click and conversion models under differential privacy: label DP by unit, DP-SGD, and the Hybrid of both.

examples        what a model learns from or predicts for: some rows of an encoded log
methods         READ FIRST: the ways to train, as values; each makes a plan
plan            what a training will do and promise, from public quantities alone
run             carries out a plan, step by step
estimator       all of it in scikit-learn's manner
settings        how a phase learns; targets: what it learns towards
defaults        what is chosen where nothing was said, and why
recalibration   predictions put right after DP-SGD, by one noisy statistic
models/         two towers each, with a truncated form; saving, ONNX
labels/         how labels become noisy targets, once
sgd/            sampling, clipping, noise, updates, and their slow twin
statistic/      one noisy statistic instead of noisy labels
evaluation/     measures with intervals
configuration/  a training in one TOML file
checkpoints, memory, spending, sinks, secret_file, grouping, digests: what a long run needs around it
audit           DP-SGD as it is really run, against its claim
"""
