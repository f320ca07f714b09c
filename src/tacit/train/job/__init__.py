"""One training from a configuration to a saved model: plan, pay, run, place, commit.

plan          data, method and plan of a configuration, from public quantities alone
memory        how much memory it will take
payment       who pays: what a training costs, asked of any ledger that keeps to `TrainingLedger`
label_flips   the secret that keys flips of labels, what was flipped with it, and its name in the ledger
checkpoints   how a run that died continues, and why that is no second release
progress      what is shown while it trains
"""
