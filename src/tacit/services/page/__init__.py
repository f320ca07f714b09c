"""The page of a demonstration, which `tacit serve` serves at `/`, and the device's client for browsers.

part              the page's routes, at both parties
device_files      the client's modules and what it must know of the parties, over GET
client_export     the same as files of a publisher's own site
seen              what each party saw last
ledger            charges as they arrive, with their reasons
other_phones      made-up devices that visit on asking, to hide among
statistics_round  a simulated round of statistics

The page's own files are plain ES modules in the folder `web`, of which nothing is built. All of it but the
client is there in demonstrations alone (`PartySettings.is_demonstration`).
"""
