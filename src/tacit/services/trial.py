"""Files for trying both parties on one machine: settings, keys, secrets, parties.toml, and a small market."""

from __future__ import annotations

from pathlib import Path

from tacit.bill.protocol.keys import SigningKey
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.files import write_new_files
from tacit.gather.protocol.credentials import SealingKey
from tacit.services.signatures import SECRET_BYTES

SETTINGS = """\
# The {party} of a trial on one machine. Paths are relative to this file; unknown keys are refused.
[listen]
host = "127.0.0.1"
port = {port}
# certificate = "{party}.crt"      # with a private key beside it: TLS
# private_key = "{party}.key"
# behind_tls = true                # instead of them, where a reverse proxy speaks TLS in front of this

[store]                            # paths, or postgresql+psycopg://... (the ledger then needs a witness = PATH)
gathered = "{party}.sqlite"
ledger = "{party}-ledger.sqlite"
keep_days = 30                     # who reported in a settled round is deleted so long after it closed
{questions}
[secrets]                          # files that only their owner may read
sealing = "{party}.sealing"
pair = "pair.secret"
{own} = "{own}.secret"

[other]
url = "http://127.0.0.1:{other_port}"
# trust = "{other}.crt"            # the certificate it shows, instead of the system's authorities
"""

SERVER_BILLING = """
[billing]                          # without this table, statistics alone
store = "ads.sqlite"               # a path, or postgresql+psycopg://...
market = "market.toml"             # campaigns, contexts and bids
proxy_signing_key = "{other_key}"
signing_workers = 2                # threads that sign tokens
keep_days = 7                      # an epoch's private keys are deleted so long after its end
"""

PROXY_BILLING = """
[billing]                          # without this table, statistics alone
store = "reports.sqlite"           # a path, or postgresql+psycopg://...
server_signing_key = "{other_key}"
hold_seconds = 2                   # for a quick look; leave it out, and an epoch's reports leave together
offers_per_address = 0             # requests for offers per minute from one address; 0: no limit
keep_days = 30                     # signed sizes of cohorts are deleted so long after their epoch's end
"""

PARTIES = """\
# What everybody may know: where the parties are, the keys that devices seal to, and those that they check by.
[proxy]
url = "http://127.0.0.1:{proxy_port}"
public_key = "{proxy_key}"
signing_key = "{proxy_signing}"

[server]
url = "http://127.0.0.1:{server_port}"
public_key = "{server_key}"
signing_key = "{server_signing}"
"""

CONTEXTS = """\
# How devices may tell where they are and what they read: exactly, more coarsely, or not at all.
[[attribute]]
name = "city"
paths = ["North > Northport", "North > Millbridge", "South > Southwick", "South > Harbour"]

[[attribute]]
name = "topic"
paths = ["Food > Coffee", "Food > Tea", "Sport > Running", "Sport > Cycling"]

[sequence]                         # exact, then by region and topic's kind, then by region alone, then nothing
steps = [[0, 0], [1, 1], [1, 2], [2, 2]]
"""

MARKET = """\
# What may be shown where, and who pays. Read again for each epoch: what is changed here counts from the next.
epoch_seconds = 60                 # for which a menu and its token keys are offered (production: 600 to 86400)
report_seconds = 600               # after an epoch's end, in which its impressions can still be reported
epsilon = 1.0                      # what one private choice may spend
smallest_cohort = 5                # reports of a menu that leave the proxy together, at least
reserve_micros = 100               # the least public score (bid x rate) that takes part
attributes = ["city", "topic"]     # names for reading; contexts.toml has their levels

[[campaign]]
number = 1
advertiser = "Bean & Leaf"
budget_micros = 50_000_000         # in all; without the key: no limit

[[campaign]]
number = 2
advertiser = "Long Run Shoes"
budget_micros = 80_000_000

[[campaign]]
number = 3
advertiser = "Two Wheels"

[[campaign]]
number = 4
advertiser = "Tea House"

[[menu]]                           # one for each context that is offered, at its levels
levels = [1, 1]
values = ["North", "Food"]
ads = [                            # bid for a click, and the public chance of one in this context
    { campaign = 1, bid_micros = 400_000, rate = 0.031 },
    { campaign = 4, bid_micros = 350_000, rate = 0.028 },
    { campaign = 2, bid_micros = 600_000, rate = 0.009 },
]

[[menu]]
levels = [1, 1]
values = ["North", "Sport"]
ads = [
    { campaign = 2, bid_micros = 600_000, rate = 0.034 },
    { campaign = 3, bid_micros = 700_000, rate = 0.025 },
    { campaign = 1, bid_micros = 400_000, rate = 0.011 },
]

[[menu]]
levels = [1, 1]
values = ["South", "Food"]
ads = [
    { campaign = 4, bid_micros = 350_000, rate = 0.036 },
    { campaign = 1, bid_micros = 400_000, rate = 0.029 },
]

[[menu]]
levels = [1, 1]
values = ["South", "Sport"]
ads = [
    { campaign = 3, bid_micros = 700_000, rate = 0.030 },
    { campaign = 2, bid_micros = 600_000, rate = 0.027 },
    { campaign = 4, bid_micros = 350_000, rate = 0.008 },
]

[[menu]]                           # for who tells nothing
levels = [2, 2]
values = ["*", "*"]
ads = [
    { campaign = 2, bid_micros = 600_000, rate = 0.018 },
    { campaign = 3, bid_micros = 700_000, rate = 0.015 },
    { campaign = 1, bid_micros = 400_000, rate = 0.019 },
    { campaign = 4, bid_micros = 350_000, rate = 0.017 },
]
"""


def write_trial(
    folder: Path, *, proxy_port: int, server_port: int, entropy: Entropy, billing: bool = False
) -> list[Path]:
    """Make the files; refuses a folder in which one of them is already, before it writes any."""
    if proxy_port == server_port:
        raise BadInput(f"--server-port: expected another port than the proxy's, got {server_port} for both")
    keys = {"proxy": SealingKey.generate(), "server": SealingKey.generate()}
    signing = {party: SigningKey.derive(key.to_bytes()).public.hex() for party, key in keys.items()}
    secrets = {f"{party}.sealing": key.to_bytes() for party, key in keys.items()}
    secrets |= {f"{name}.secret": entropy.bytes(SECRET_BYTES) for name in ("pair", "enrolment", "operator")}
    texts = {
        "proxy.toml": SETTINGS.format(
            party="proxy", other="server", port=proxy_port, other_port=server_port, own="enrolment",
            questions='questions = "questions"            # a folder\n',
        ),
        "server.toml": SETTINGS.format(
            party="server", other="proxy", port=server_port, other_port=proxy_port, own="operator",
            questions="",
        ),
        "parties.toml": PARTIES.format(
            proxy_port=proxy_port, server_port=server_port,
            proxy_key=keys["proxy"].public.hex(), server_key=keys["server"].public.hex(),
            proxy_signing=signing["proxy"], server_signing=signing["server"],
        ),
    }  # fmt: skip
    if billing:
        texts["proxy.toml"] += PROXY_BILLING.format(other_key=signing["server"])
        texts["server.toml"] += SERVER_BILLING.format(other_key=signing["proxy"])
        texts |= {"market.toml": MARKET, "contexts.toml": CONTEXTS}
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: (secret.hex().encode() + b"\n", True) for name, secret in secrets.items()}
    write_new_files(folder, {**contents, **{name: (text.encode(), False) for name, text in texts.items()}})
    return [folder / name for name in (*texts, *secrets)]
