"""Definitions of logs: one module per log that tacit knows by name.

definition      what they share; `find_log` by name, `load_log` from a TOML file of your own
taobao_tables   the tables that Taobao's impressions refer to, and each person's history
"""
