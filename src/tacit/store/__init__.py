"""Durable state behind the Protocols that its users declare: SQLite by default, PostgreSQL by URL."""
