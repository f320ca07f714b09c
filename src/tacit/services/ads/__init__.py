"""The ad server's own part of the server's app: what it sells, to whom, and what people see of it.

parts        what the parts share, and the list of them
learning     the prior that charges speak for, in the menus of the next epoch
statistics   rounds by schedule, and versions of what they released
menu_questions   what those ask, of clicks and of conversions
versions     the rates that statistics and models in use make, and operations to roll them out
rate_models  models as versions, scoring contexts and campaigns
version_desk, rollouts     operators' work on versions; a model trained anew beside the one in use
campaign_menus   menus of the campaigns in the store, and the keys of a market.toml that has none of its own
menu_board   the menus of the public lane, over GET
packs        the ads of a menu, over GET
pacer        how much of each campaign may be out in an epoch, and what it can be over its budget
pacing_part  the same over GET, and as figures
openrtb      bids for exchanges, over OpenRTB 2.6: the endpoint
openrtb_settings, openrtb_messages   who may ask, how requests become contexts; the fields that are read
openrtb_bidder, openrtb_ads          bids of menus; creatives as markup, and what fits where
notices      exchanges' billing notices, reported to the proxy
reports      what advertisers are told: JSON, CSV, Parquet, a page (`report_page`)
console      what goes on, for those who run it and for advertisers, in a browser
access       who asks: access keys, and how often they may
api          operations for access keys, with their OpenAPI description
public_operations       what that description says of operations without one: menus, packs, bids, notices
campaign_api, key_api   those for advertisers, campaigns and ads, and for access keys and the trail of changes
campaign_desk           the same for whoever asks: over HTTP (`access_client`), or on the store itself
campaign_schemas        what they take and give, in JSON Schema
sanitiser    HTML of ads, as far as it may be shown
"""
