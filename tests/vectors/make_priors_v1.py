"""Makes priors_v1.json: every kind of prior of tests/deliver/protocol/test_priors.py as a menu holds it.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_priors_v1.py

Records that are out there must be read as they were meant: a change here needs another version.
"""

from __future__ import annotations

import json
from pathlib import Path

from tacit.deliver.protocol.priors import prior_as_json
from tests.deliver.protocol.test_priors import KINDS

records = {name: prior_as_json(prior) for name, prior in KINDS.items()}
Path(__file__).with_name("priors_v1.json").write_text(json.dumps(records, indent=1) + "\n")
