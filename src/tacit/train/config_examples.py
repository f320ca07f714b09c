"""Complete training configurations, one per method, with every key that it reads, for `tacit train --example`.

Keys of `[model]` alone are not all here: they are the fields of the model that is named.
"""

from __future__ import annotations

_FILES = """\
data = "display"             # the folder that `tacit data prepare` wrote
part = "train"               # of its split; "everything" for all rows
out = "model"                # the folder that the model goes to
"""

_SHAPE = """\
dim = 16                     # numbers for each value's embedding; docs/train.md has the keys of other models
"""

_TOP = f"""{_FILES}
[model]
name = "fm"                  # fm, logistic, mlp, fnn or din
{_SHAPE}"""

_DP_SGD_TOP = f"""{_FILES}
[model]
name = "fm"                  # fm, logistic or mlp; fnn and din are not for DP-SGD
{_SHAPE}"""

_UNIT = """\
# window_days = 30           # a promise for each window of so many days of a unit
# window_origin = 0          # when the first window begins, in Unix seconds
# ad_tech = "example-exchange"  # whose data of a unit is meant, where several hold some; the statement names it
"""

_OPTIMIZER = """\
# decay = "cosine"           # of the rate, to 0; or constant
# penalty = 0.0              # pulls embeddings to 0, or all weights of a model without any
# momentum = 0.9             # of sgd; the others have none
# beta1 = 0.9                # of adam and yogi: how much of the mean gradient is kept from step to step
# beta2 = 0.999              # of adam, yogi and rmsprop: likewise of the mean squared gradient
# optimizer_epsilon = 1e-8   # of these three: added to that square's root, before a step is divided by it
"""

_LABELS = f"""
[labels]                     # the phase on noisy labels
mechanism = "randomized-response"  # or prior, or laplace
# prior_rate = 0.03          # of prior and laplace: a public guess of how many labels are 1
correction = "forward"       # or unbiased, raw
version = 0                  # raise it when labels have changed: a new release
# epochs = 3                 # left out: until examples held out say that it is enough
# batch = 2048               # left out, as all below: chosen for your log; --dry-run says what and why
# optimizer = "adam"         # or sgd, yogi, rmsprop
# rate = 0.004
{_OPTIMIZER}"""

_VALUES = """\
# mechanism = "bins"         # for a label that is a count or an amount; correction = "unbiased", or raw
# values = [0, 5, 20, 80]    # what each bin stands for
# edges = [1, 10, 50]        # where bins begin; or prior, how likely each of values is: then the best bins
# mechanism = "ends"         # or rounded at random to low = 0 or high = 80, and the end flipped
# head = "squared"           # of a model of values; or poisson
# report_days = [1, 30]      # labels of 0 or 1, reported as they stood so many days after the row
# shares = ["1/4", "3/4"]    # of epsilon, for each report
# arrived = [0.6, 1]         # of all conversions within the last delay, those that are there by each; public
# as_of = 1767225600         # in seconds: the reports that there were then; left out: now
"""
_LABEL_DP = f"{_LABELS}{_VALUES}"

_DESCENT = f"""
[descent]                    # DP-SGD; nothing here moves the guarantee, for noise is solved for it
# epochs = 10                # left out, as all below: chosen for your log; --dry-run says what and why
# recalibrate = false        # else one noisy statistic, of the same budget, puts predictions right in the end
# batch = 8192               # on average: every example joins each batch by chance
# clip_norm = 5.0            # smaller ranks better, larger predicts better
# start_rate = 0.05          # a public base rate to start from, where no labels are learned from before
# optimizer = "sgd"          # with momentum = 0.9; or adam, yogi, rmsprop
# rate = 0.5                 # of the optimizer that you name beside it
{_OPTIMIZER}"""

_LEDGER = """
[ledger]                     # needed on data that is not made up; begin one with `tacit ledger grant`
path = "tacit-ledger.sqlite"
scope = "clicks"             # the ledger's name for these people's data
# witness = "ledger.witness" # a better place for it than beside the ledger: docs/ledger.md
# relation = "replace-one"   # pay on the line of releases that read all features
"""

_KEY = """key = "clicks/model-1"       # this release's own name; a new training needs a new one
"""

_SECRET = """secret = "flips.secret"      # keys the flips of labels; made if absent; keep it to yourself
"""

_SPEED = """
[speed]                      # changes time and memory and nothing else
microbatch = 16384
"""

_NOISE = """# noise = "auto"             # or dense, lazy: one law, drawn at once or when a row is next read
"""

_END = """
[checkpoint]                 # for --resume after a crash
every_minutes = 10
# every_steps = 500          # or after so many steps, whichever comes first

# [run]
# simulated = 1              # a trial on made-up data, without [ledger]: this seed, no payment, no promise
# tensorboard = "runs"       # or mlflow = "uri": what the progress line shows
# [export]
# onnx = "model.onnx"
# device = "model.tacit"     # for devices in JavaScript: fm and logistic
"""

EXAMPLES = {
    "hybrid-short": """\
  data = "display"             # what `tacit data prepare` wrote
  out = "model"

  [model]
  name = "fm"                  # fm, logistic or mlp; fnn and din are not for DP-SGD
  dim = 16

  [privacy]                    # all that moves the guarantee
  method = "hybrid"            # plain, label-dp, dp-sgd, hybrid or statistic
  epsilon = 8
  delta = 1e-6

  [ledger]                     # who pays; data that is not made up needs one
  path = "tacit-ledger.sqlite"
  scope = "clicks"
  key = "clicks/model-1"
""",
    "plain": f"""{_TOP}
[privacy]
method = "plain"             # no privacy: nothing is promised, and that has to be said

# [descent]                  # left out: chosen for your log; --dry-run says what and why
# epochs = 2
# batch = 2048
# optimizer = "adam"         # or sgd, yogi, rmsprop
# rate = 0.004
{_OPTIMIZER}{_SPEED}{_END}""",
    "label-dp": f"""{_TOP}
[privacy]                    # all that moves the guarantee is in here
method = "label-dp"          # labels are flipped once; only public features are read
epsilon = 4                  # of one unit, in all
unit = "user"                # impression, user, user-publisher or user-advertiser: see tacit explain LOG
cap = 4                      # rows of a unit that stay
cap_choice = "first"         # or random
split = "epsilon/K_i"        # or epsilon/K: by the unit's own count, or by the cap
{_UNIT}{_LABEL_DP}{_LEDGER}{_SECRET}{_SPEED}{_END}""",
    "statistic": f"""{_FILES}
[privacy]                    # all that moves the guarantee is in here
method = "statistic"         # label DP: positives in cells of public tables, told once with noise
epsilon = 1
delta = 1e-6
unit = "user"                # impression, user, user-publisher or user-advertiser: see tacit explain LOG
{_UNIT}
[statistic]
rank = 4                     # factors of each value; 0 for a linear model
clip_norm = 1.0              # a unit whose rows weigh more is weighed down to it
rate = 0.05                  # a public guess of how many labels are 1
# most_pairs = 64            # pairs of fields that are considered, and so memory; those of fewest cells
{_LEDGER}{_KEY}
# [run]
# simulated = 1              # a trial on made-up data, without [ledger]: this seed, no payment, no promise
# [export]
# device = "model.tacit"     # for devices in JavaScript
""",
    "auto": f"""{_TOP}
[privacy]                    # all that moves the guarantee is in here
method = "auto"              # label DP by flips or by one noisy statistic: --dry-run says which, and why
epsilon = 1
delta = 1e-6                 # of the statistic; flips need none
unit = "user"                # impression, user, user-publisher or user-advertiser: see tacit explain LOG
{_UNIT}
[statistic]
rate = 0.05                  # a public guess of how many labels are 1
# rank = 4                   # factors of each value; 0 for a linear model
# clip_norm = 1.0            # a unit whose rows weigh more is weighed down to it
# most_pairs = 64            # pairs of fields that are considered, and so memory; those of fewest cells

# [labels]                   # should it flip: left out, chosen for your log
# correction = "forward"     # or unbiased, or raw
# version = 0                # raise it when labels have changed
# epochs = 3
# batch = 2048
# rate = 0.001
# optimizer = "adam"         # or sgd, yogi, rmsprop
{_OPTIMIZER}{_LEDGER}{_KEY}{_SECRET}{_SPEED}{_END}""",
    "dp-sgd": f"""{_DP_SGD_TOP}
[privacy]                    # all that moves the guarantee is in here
method = "dp-sgd"
epsilon = 8
delta = 1e-6
unit = "impression"          # or user: then a user's rows are clipped as one
{_UNIT}{_DESCENT}{_LEDGER}{_KEY}{_SPEED}{_NOISE}{_END}""",
    "hybrid": f"""{_DP_SGD_TOP}
[privacy]                    # all that moves the guarantee is in here
method = "hybrid"            # first public features on noisy labels, then everything by DP-SGD
epsilon = 8                  # both phases together
delta = 1e-6
unit = "impression"          # with user, user-publisher or user-advertiser, these two as well:
# cap = 4                    # rows of a unit whose labels are learned from; cap_choice = "first", or random
# split = "epsilon/K_i"      # or epsilon/K: by the unit's own count, or by the cap
{_UNIT}k = "auto"                   # the share of epsilon for labels, or a number from 0 to 1
                             # "auto" tells a statistic of labels first, where there are enough of them
public_tower = "fine-tuned"  # or frozen in the second phase

# [statistic]                # how that statistic is made; with a number for k: labels.mechanism = "statistic"
# rank = 4                   # factors of each value; 0 for a linear model
# clip_norm = 1.0            # a unit whose rows weigh more is weighed down to it
# rate = 0.05                # a public guess of how many labels are 1
# most_pairs = 64            # pairs of fields that are considered, and so memory; those of fewest cells
{_LABELS}{_DESCENT}{_LEDGER}{_KEY}{_SECRET}{_SPEED}{_NOISE}{_END}""",
}
