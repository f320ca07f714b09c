"""One training from a configuration to a saved model: plan, pay, run, place, commit; and how good it is.

planned_training  data, method and plan of a configuration, from public quantities alone
plan_summary      what it will do and promise, for machines and as `tacit train` prints it
memory            how much memory it will take
payment           who pays: what a training costs, asked of any ledger that keeps to `TrainingLedger`
label_flips       the secret that keys flips of labels, what was flipped with it, and its name in the ledger
training_job      a plan with its model, where it draws from, what comes of it, and where the model goes
run               `run_training`: reserve, train, say what was made, put it in its place, commit
checkpoints       how a run that died continues, and why that is no second release
progress          what is shown while it trains
progress_line     the line that shows it, in a terminal or a notebook
model_evaluation  `evaluate_model`: a saved model measured on a prepared log, as `tacit evaluate` does it
noisy_evaluation  labels to measure models on, flipped once and paid for once
"""
