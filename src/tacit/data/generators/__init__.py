"""Generators of synthetic logs: per log a stated probabilistic model, seeded, streaming and calibrated.

worlds                                              START HERE: every world by name, and what all of them offer
criteo_display, criteo_search, criteo_attribution   Criteo's logs; attribution_journeys: users' conversions
taobao                                              Taobao's display ads; taobao_tables: ads, people, behaviour
conversions                                         clicks for the clean room; conversion_model: the labels
visits                                              visits to venues of a city
markets                                             auctions: bids, estimates and true click probabilities
town                                                the town of the simulated day
distributions, fields                               what several draw from: ranks, correlated fields, logits

All output is synthetic and must be called so wherever it is shown.
"""
