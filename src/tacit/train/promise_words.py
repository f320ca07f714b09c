"""The words for a training without a privacy statement, and for what a statement leaves open.

A statement's own words are in `tacit.privacy.statement`, and each mechanism's in `tacit.privacy.releases`.
`tacit.train.explanation` makes the page of `tacit explain` of them all.
"""

from __future__ import annotations

NO_PROMISE = "no privacy promised: this model may tell what it learned about single people"
"""Beside a saved model, in its ONNX file, and from an estimator's `explain`."""
SEEDED_NOISE = "No privacy promised: the noise came from a seed (random_state), which makes it a simulation."
"""From an estimator's `explain`."""

# On the page of `tacit explain`.
NO_PROMISE_PAGE = (
    "No privacy is promised. The model was trained on true labels and all features, and may tell what it "
    "learned about single people. Treat it like the data."
)
SIMULATED_PAGE = (
    "Simulated, not private. The noise of this training comes from a seed, and whoever knows the seed can take "
    "it away again. It is a study on made-up data, and promises nothing."
)
SIMULATED_PLAIN_PAGE = (
    "Simulated, not private. This training has no noise at all; its start and its order come from a seed, so "
    "that it can be repeated. It is a study on made-up data, and promises nothing."
)
AS_IF = "As a release, with noise that nobody knows, the same training would be {}."
ABOUT_NOBODY = "The data was made up: there is nobody in it to be protected."
ABOUT_LOG = (
    "This folder holds people's data, encoded. It is not a release and not private: keep it like the log it "
    "came from. Promises are made when something that was computed from it leaves."
)
TUNING = (
    "Every model that was trained on the same people's data and looked at spends budget of its own, and so do "
    "models that were only tried: this page speaks of this one alone."
)
ADDED_UP = (
    "tacit ledger show adds up what was spent on one line: one scope, unit, relation and window. For a person, "
    "promises on different lines add up too, and the ledger does not do that sum."
)
NOT_ADDED_UP = "For a person, the promises of all of them add up; without a ledger, nobody does that sum."

# On the line of `tacit train` that says what will be promised.
NO_PROMISE_LINE = "nothing: the model may tell what it learned about single people"
SIMULATED_LINE = "nothing: simulated, not private; the noise comes from a seed that is in the file"
SIMULATED_PLAIN_LINE = (
    "nothing: no noise, no privacy; what is drawn at random comes from a seed that is in the file"
)
