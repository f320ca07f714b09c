"""One training from a configuration to a saved model: plan, pay, run, place, commit.

plan          data, method and plan of a configuration, from public quantities alone
memory        how much memory it will take
label_flips   the secret that keys flips of labels, and what was flipped with it
checkpoints   how a run that died continues, and why that is no second release
progress      what is shown while it trains
"""
