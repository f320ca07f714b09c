"""A set of settings, keys and secrets for trying both parties on one machine."""

from __future__ import annotations

from pathlib import Path

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

PARTIES = """\
# What everybody may know: where the parties are, and the keys that devices seal their reports to.
[proxy]
url = "http://127.0.0.1:{proxy_port}"
public_key = "{proxy_key}"

[server]
url = "http://127.0.0.1:{server_port}"
public_key = "{server_key}"
"""


def write_trial(folder: Path, *, proxy_port: int, server_port: int, entropy: Entropy) -> list[Path]:
    """Make the files; refuses a folder in which one of them is already, before it writes any."""
    if proxy_port == server_port:
        raise BadInput(f"--server-port: expected another port than the proxy's, got {server_port} for both")
    keys = {"proxy": SealingKey.generate(), "server": SealingKey.generate()}
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
        ),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: (secret.hex().encode() + b"\n", True) for name, secret in secrets.items()}
    write_new_files(folder, {**contents, **{name: (text.encode(), False) for name, text in texts.items()}})
    return [folder / name for name in (*texts, *secrets)]
