"""The parties that run: each is an app made by a function, from one settings file.

settings, billing_settings        one TOML file per party, and parties.toml with what everybody may know
statistics_settings               its table for rounds by schedule
trial                             files, keys and secrets for trying both parties on one machine
launch                            `proxy_app` and `server_app`, from `load_settings`; serves until asked to end
proxy                             the proxy's app; proxy_intake takes uploads, proxy_driver settles rounds
server                            the server's app: the proxy's jobs in, results out
http_clients                      a device uses `HttpUploads`, an operator `HttpOperator` (or `tacit serve
                                  open`), a proxy `HttpLink`
rounds, round_file, round_status  rounds as the parties announce them, as an operator writes one down, and
                                  how far each is at a party
party_backups                     copies of a party's stores, and putting them back without taking spending back
billing_launch                    what a party that bills adds to its app, from its settings
billing_proxy, billing_driver     the proxy's part of billing: reports in, batches out until they are receipted
billing_server, epochs            the ad server's part: offers, charges, invoices; epochs opened in time
key_maker                         token keys, drawn ahead of the epochs that need them
device_rounds                     a device's answers to rounds that the ad server opened by schedule
market_file                       campaigns, contexts and bids, as an operator writes them down
demonstration, visits             both parties as child processes; made-up devices that show ads through them
billing_clients                   a device uses `HttpAdChannel`, an operator `HttpBillingOperator`
sites                             folders of plain files over GET: pages, stylesheets, ES modules
endpoints, signatures, problems   bounded and signed requests; errors as problem documents
any_origin                        what pages of any origin may call: the routes of devices
connections, connection_limits    a deadline per step, and who is closed when there are too many
background, log                   health checks, retention; one line per error, without private values
ads                               what the ad server sells, and what people see of it
page                              the demonstration's page, and the device's client for browsers
operations                        what those who run a party see and set: metrics, readiness
room                              the clean room as two processes

Over HTTP, with bodies in msgpack (the messages of `gather.protocol`) and problems in JSON (RFC 9457):

    proxy   GET  /rounds, /rounds/{digest}                    for devices: rounds and their questions
            PUT  /rounds/{digest}/reports/{report_id}         a device's upload: 201, or why not
            GET  /rounds/{digest}/status                      {"phase": ...}
            POST /rounds; GET /link                           signed by the server
            GET  /healthz, /readyz, /metrics                  for operators
    server  POST /jobs, /agreements, /shares                  signed by the proxy
            POST /rounds; GET /rounds                         signed by the operator
            GET  /rounds/{digest}/result                      counts; 409 not-yet, 410 too-few
            GET  /healthz, /readyz, /metrics                  for operators

and, with a table [billing] in their settings, in the bytes of `bill.protocol`:

    proxy   GET  /billing/head                                for devices: the epoch that is open
            POST /billing/offers                              a sealed request, handed on to the ad server
            PUT  /billing/reports/{nonce}                     one impression: 201, or why not
            GET  /billing/reports/{nonce}                     its batch's signed size; 204 while it waits
            GET  /billing/epochs/{epoch}/batches              all signed sizes of an epoch
            POST /billing/directories                         signed by the ad server
    server  POST /billing/offers, /billing/batches            signed by the proxy
            GET  /billing/status                              signed by the operator
            POST /billing/rotate, /billing/campaigns, /billing/invoices   likewise
            GET  /openapi.json                                what access keys are for: /ads/..., in JSON
            GET  /device/...                                  the device's client for browsers
            GET  /, /page/..., /demonstration/...             the page of a market that is made up
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.services.ads.campaign_desk import open_desk
    from tacit.services.billing_clients import HttpAdChannel, HttpBillingOperator
    from tacit.services.device_rounds import CountingDevice
    from tacit.services.http_clients import HttpLink, HttpOperator, HttpUploads, PublicKeys
    from tacit.services.launch import proxy_app, server_app
    from tacit.services.room.remote_room import RemoteRoom
    from tacit.services.settings import PartySettings, load_parties, load_settings
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "ads.campaign_desk": "open_desk",
            "billing_clients": "HttpAdChannel HttpBillingOperator",
            "device_rounds": "CountingDevice",
            "http_clients": "HttpLink HttpOperator HttpUploads PublicKeys",
            "launch": "proxy_app server_app",
            "room.remote_room": "RemoteRoom",
            "settings": "PartySettings load_parties load_settings",
        },
    )

__all__ = [
    "CountingDevice", "HttpAdChannel", "HttpBillingOperator", "HttpLink", "HttpOperator", "HttpUploads",
    "PartySettings",
    "PublicKeys", "RemoteRoom", "load_parties", "load_settings", "open_desk", "proxy_app", "server_app",
]  # fmt: skip
