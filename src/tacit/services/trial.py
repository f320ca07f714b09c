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

SYNTHETIC = """\
synthetic = true                   # the market is made up: the console says so, and / is a page to try it on
"""
PROXY_SYNTHETIC = """\
synthetic = true                   # the market is made up: that page is shown what the proxy saw last
"""

SERVER_OPENRTB = """
[openrtb]                          # without this table, exchanges are not answered
url = "http://127.0.0.1:{port}"    # where exchanges reach this server
contexts = "contexts.toml"         # what requests are generalised by
currency = "USD"

[[openrtb.attribute]]              # how a request's fields become a context
name = "city"
from = ["device.geo.city", "device.geo.region"]
values = {{ Northport = "Northport", Southwick = "Southwick", NO = "North", SO = "South" }}

[[openrtb.attribute]]
name = "topic"
from = ["site.pagecat", "site.cat", "app.cat"]
values = {{ "IAB8-5" = "Coffee", IAB8 = "Food", "IAB17-32" = "Running", IAB17 = "Sport" }}

[[openrtb.exchange]]
name = "trial"
secret = "exchange.secret"         # its key, as the exchange shows it
reasons = true                     # say why there is no bid
clients = true                     # believe it where it says that a page has the device's client
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
# What may be shown where: menus are made of the campaigns in the store. Read again for each epoch.
epoch_seconds = 60                 # for which a menu and its token keys are offered (production: 600 to 86400)
report_seconds = 600               # after an epoch's end, in which its impressions can still be reported
epsilon = 1.0                      # what one private choice may spend
smallest_cohort = 5                # reports of a menu that leave the proxy together, at least
reserve_micros = 100               # the least public score (bid x rate) that takes part
contexts = "contexts.toml"         # the hierarchy of contexts
levels = [[1, 1], [2, 2]]          # those that get menus: region and kind of topic, and nothing at all
{first}
[menus]
candidates = 4                     # ads of a menu, at most
default_rate = 0.02                # of a click, until statistics are released
default_conversion_rate = 0.001
"""

FIRST = """\
campaigns = "campaigns.toml"       # made up; read once, while the store has no campaigns
creatives = "creatives.toml"       # their ads, likewise
"""

CAMPAIGNS = """\
# Made-up advertisers and campaigns for a first look. Later: tacit ads, or the API of the ad server.
[[advertiser]]
name = "Corner Roasters"

[[advertiser]]
name = "Long Run Shoes"

[[advertiser]]
name = "Two Wheels"

[[advertiser]]
name = "Tea House"

[[campaign]]
number = 1
advertiser = "Corner Roasters"
title = "Fresh roast"
event = "click"                    # what bids are for; each impression is charged at its public chance
budget_micros = 500_000_000
categories = ["IAB8"]
caps = [{ impressions = 50, seconds = 86_400 }]
bids = [
  { micros = 450_000 },
  { micros = 620_000, context = { levels = [1, 1], values = ["North", "Food"] } },
  { micros = 580_000, context = { levels = [1, 1], values = ["South", "Food"] } },
]

[[campaign]]
number = 2
advertiser = "Long Run Shoes"
title = "Marathon spring"
event = "click"
budget_micros = 800_000_000
categories = ["IAB17"]
bids = [
  { micros = 500_000 },
  { micros = 680_000, context = { levels = [1, 1], values = ["North", "Sport"] } },
]

[[campaign]]
number = 3
advertiser = "Two Wheels"
title = "City bikes"
event = "conversion"
categories = ["IAB17"]
bids = [
  { micros = 9_000_000 },
  { micros = 12_500_000, context = { levels = [1, 1], values = ["South", "Sport"] } },
]

[[campaign]]
number = 4
advertiser = "Tea House"
title = "First flush"
event = "impression"
categories = ["IAB8"]
bids = [
  { micros = 8_500 },
  { micros = 11_800, context = { levels = [1, 1], values = ["South", "Food"] } },
]
"""

CREATIVES = """\
# The ads of the made-up campaigns: texts, which lead to addresses that nobody has.
[[creative]]
campaign = 1
title = "Fresh on Mondays"
text = "Roasted the day before."
address = "https://roasters.example/"

[[creative]]
campaign = 2
title = "Shoes for the long run"
address = "https://longrun.example/"

[[creative]]
campaign = 3
title = "A bike for the city"
text = "Lights and mudguards included."
address = "https://twowheels.example/"

[[creative]]
campaign = 4
title = "First flush is here"
address = "https://teahouse.example/"
"""


def write_trial(
    folder: Path,
    *,
    proxy_port: int,
    server_port: int,
    entropy: Entropy,
    billing: bool = False,
    empty: bool = False,
) -> list[Path]:
    """Make the files; refuses a folder in which one of them is already, before it writes any.

    empty  billing without the made-up campaigns and the exchange: for a market of one's own
    """
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
        texts |= {"market.toml": MARKET.format(first="" if empty else FIRST), "contexts.toml": CONTEXTS}
        if not empty:
            texts["proxy.toml"] += PROXY_SYNTHETIC
            texts["server.toml"] += SYNTHETIC + SERVER_OPENRTB.format(port=server_port)
            secrets["exchange.secret"] = entropy.bytes(SECRET_BYTES)
            texts |= {"campaigns.toml": CAMPAIGNS, "creatives.toml": CREATIVES}
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: (secret.hex().encode() + b"\n", True) for name, secret in secrets.items()}
    write_new_files(folder, {**contents, **{name: (text.encode(), False) for name, text in texts.items()}})
    return [folder / name for name in (*texts, *secrets)]
