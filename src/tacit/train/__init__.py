"""Click and conversion models under differential privacy: label DP by unit, DP-SGD, and the Hybrid of both.

examples        what a model learns from or predicts for: some rows of an encoded log, by unit
targets         what a phase learns towards, and the loss
settings        how a phase learns, and the defaults with their reasons
methods         READ FIRST: the ways to train, as values; each makes a plan
plan            what a training will do and promise, from public quantities alone
run             trains as a plan says, step by step
recalibration   predictions corrected after DP-SGD, by one noisy statistic
estimator       all of it in scikit-learn's manner
config          a training as frozen values; config_file: the same from one TOML file
models/         two towers each, with a truncated form; saving, ONNX
labels/         how labels become noisy targets, once
sgd/            sampling, clipping, noise, updates, and the checks of a private run
statistic/      one noisy statistic instead of noisy labels
evaluation/     measures with intervals
job/            a training from configuration to saved model: plan, pay, run, place, commit
audit           DP-SGD and the recalibration as they are really run, against their claims
"""
